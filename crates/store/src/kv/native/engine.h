// The face that native.rs sees: ordered keys and values of RocksDB or LevelDB, and what they write
// by cause. Nothing here throws into Rust, and Rust's callbacks do not unwind into C++.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace loligo {

// Places in the counters' array; native.rs has the same order.
enum Counter {
  kWalBytes,         // write-ahead log
  kFlushBytes,       // tables made of what the log holds
  kCompactionBytes,  // tables made of tables
  kManifestBytes,    // which tables there are
  kOtherBytes,       // options, identity, anything else
  kReadBytes,        // all reads of files
  kSyncs,            // fdatasync and fsync
  kCounters
};

// Under which name a file that is opened for writing is told its counter (in IOOptions'
// property_bag): a file system of ours wants to know why it writes.
constexpr char kCauseProperty[] = "loligo.cause";

// Outcomes of every call; native.rs has the same.
enum Outcome : int { kOk = 0, kStorage = 1, kCorrupt = 2, kNoSpace = 3, kOptions = 4 };

struct Counters {
  std::atomic<uint64_t> of[kCounters] = {};
  void add(Counter which, uint64_t n) { of[which].fetch_add(n, std::memory_order_relaxed); }
};

// What a file is, by its name: 000012.log, 000013.sst, 000014.ldb, MANIFEST-000005...
inline bool ends_with(const std::string& name, const char* suffix) {
  size_t len = strlen(suffix);
  return name.size() >= len && name.compare(name.size() - len, len, suffix) == 0;
}
inline std::string base_name(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Behind all keys there are: for calls that know no range without an end.
inline std::string last_key() { return std::string(64, '\xff'); }

// A change: op 0 put, 1 delete, 2 delete the range key..value (an empty value: to the end).
struct Op {
  uint32_t op;
  uint32_t key_len;
  uint64_t value_len;
  const char* key;
  const char* value;
};

// Called with an entry; whether to go on.
typedef int (*Visit)(void* context, const char* key, size_t key_len, const char* value,
                     size_t value_len);

// A database. All calls may come from any thread.
class Engine {
 public:
  virtual ~Engine() {}
  // Calls visit once if the key is there.
  virtual int get(const char* key, size_t len, Visit visit, void* context, std::string* error) = 0;
  virtual int scan(const char* start, size_t start_len, const char* end, size_t end_len,
                   bool backwards, Visit visit, void* context, std::string* error) = 0;
  virtual int write(const Op* ops, size_t count, bool sync, std::string* error) = 0;
  virtual int compact(std::string* error) = 0;
  // About how many bytes tables and memory have for a range; an empty end is no limit.
  virtual int range_bytes(const char* start, size_t start_len, const char* end, size_t end_len,
                          uint64_t* out, std::string* error) = 0;
  // If deletions hide much, lets compactions begin that give it back.
  virtual void reclaim() = 0;
  Counters counters;
};

}  // namespace loligo
