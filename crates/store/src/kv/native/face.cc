// The C functions that native.rs calls: each forwards to an Engine.
#include "engine.h"

using loligo::Engine;

namespace {

int told(int outcome, const std::string& error, char** out) {
  *out = outcome == loligo::kOk ? nullptr : strdup(error.c_str());
  return outcome;
}

}  // namespace

extern "C" {

int loligo_kv_get(Engine* db, const char* key, size_t len, loligo::Visit visit, void* context,
                  char** error) {
  std::string text;
  int outcome = db->get(key, len, visit, context, &text);
  return told(outcome, text, error);
}

int loligo_kv_scan(Engine* db, const char* start, size_t start_len, const char* end,
                   size_t end_len, int backwards, loligo::Visit visit, void* context,
                   char** error) {
  std::string text;
  int outcome =
      db->scan(start, start_len, end, end_len, backwards != 0, visit, context, &text);
  return told(outcome, text, error);
}

int loligo_kv_write(Engine* db, const loligo::Op* ops, size_t count, int sync, char** error) {
  std::string text;
  int outcome = db->write(ops, count, sync != 0, &text);
  return told(outcome, text, error);
}

int loligo_kv_compact(Engine* db, char** error) {
  std::string text;
  int outcome = db->compact(&text);
  return told(outcome, text, error);
}

int loligo_kv_range_bytes(Engine* db, const char* start, size_t start_len, const char* end,
                          size_t end_len, uint64_t* out, char** error) {
  std::string text;
  int outcome = db->range_bytes(start, start_len, end, end_len, out, &text);
  return told(outcome, text, error);
}

void loligo_kv_reclaim(Engine* db) { db->reclaim(); }

void loligo_kv_counters(Engine* db, uint64_t* out) {
  for (int i = 0; i < loligo::kCounters; i++)
    out[i] = db->counters.of[i].load(std::memory_order_relaxed);
}

void loligo_kv_close(Engine* db) { delete db; }

void loligo_kv_free_error(char* error) { free(error); }

}  // extern "C"
