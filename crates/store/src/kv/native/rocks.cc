// RocksDB behind engine.h, over a file system that counts every byte by the kind of its file.
//
// A table belongs to a flush or to a compaction: RocksDB tells its listeners which before it
// creates the file. The counting file system may lie on any other: on the machine's, or on one
// that the caller brings (loligo_rocks_open's file_system).
#include "engine.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/experimental.h>
#include <rocksdb/file_system.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

using namespace ROCKSDB_NAMESPACE;

namespace loligo {
namespace {

// Ranges of up to so many keys are deleted key by key: a range tombstone slows reads down until
// it is compacted away.
constexpr size_t kRangeKeysMax = 4096;

// Deletions that hide something are much if they are so many, and one in so many entries.
constexpr uint64_t kDeletionsMin = 1000;
constexpr uint64_t kDeletionsShare = 8;

// Why the tables that are being written are written, by path.
class Reasons {
 public:
  void start(const std::string& path, Counter why) {
    std::lock_guard<std::mutex> lock(mutex_);
    of_[base_name(path)] = why;
  }
  void finish(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    of_.erase(base_name(path));
  }
  Counter of_table(const std::string& path) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = of_.find(base_name(path));
    return found == of_.end() ? kCompactionBytes : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Counter> of_;
};

class TableListener : public EventListener {
 public:
  explicit TableListener(std::shared_ptr<Reasons> reasons) : reasons_(std::move(reasons)) {}
  const char* Name() const override { return "loligo"; }
  void OnTableFileCreationStarted(const TableFileCreationBriefInfo& info) override {
    bool compaction = info.reason == TableFileCreationReason::kCompaction;
    reasons_->start(info.file_path, compaction ? kCompactionBytes : kFlushBytes);
  }
  void OnTableFileCreated(const TableFileCreationInfo& info) override {
    reasons_->finish(info.file_path);
  }

 private:
  std::shared_ptr<Reasons> reasons_;
};

class CountedWritable : public FSWritableFileOwnerWrapper {
 public:
  CountedWritable(std::unique_ptr<FSWritableFile>&& file, Counters* counters, Counter which)
      : FSWritableFileOwnerWrapper(std::move(file)), counters_(counters), which_(which) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    counters_->add(which_, data.size());
    return target()->Append(data, options, dbg);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const DataVerificationInfo& info,
                  IODebugContext* dbg) override {
    counters_->add(which_, data.size());
    return target()->Append(data, options, info, dbg);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* dbg) override {
    counters_->add(which_, data.size());
    return target()->PositionedAppend(data, offset, options, dbg);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const DataVerificationInfo& info, IODebugContext* dbg) override {
    counters_->add(which_, data.size());
    return target()->PositionedAppend(data, offset, options, info, dbg);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    counters_->add(kSyncs, 1);
    return target()->Sync(options, dbg);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    counters_->add(kSyncs, 1);
    return target()->Fsync(options, dbg);
  }

 private:
  Counters* counters_;
  Counter which_;
};

class CountedSequential : public FSSequentialFileOwnerWrapper {
 public:
  CountedSequential(std::unique_ptr<FSSequentialFile>&& file, Counters* counters)
      : FSSequentialFileOwnerWrapper(std::move(file)), counters_(counters) {}
  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) override {
    IOStatus status = target()->Read(n, options, result, scratch, dbg);
    if (status.ok()) counters_->add(kReadBytes, result->size());
    return status;
  }

 private:
  Counters* counters_;
};

class CountedRandomAccess : public FSRandomAccessFileOwnerWrapper {
 public:
  CountedRandomAccess(std::unique_ptr<FSRandomAccessFile>&& file, Counters* counters)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), counters_(counters) {}
  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    IOStatus status = target()->Read(offset, n, options, result, scratch, dbg);
    if (status.ok()) counters_->add(kReadBytes, result->size());
    return status;
  }

 private:
  Counters* counters_;
};

class CountingFileSystem : public FileSystemWrapper {
 public:
  CountingFileSystem(const std::shared_ptr<FileSystem>& under, Counters* counters,
                     std::shared_ptr<Reasons> reasons)
      : FileSystemWrapper(under), counters_(counters), reasons_(std::move(reasons)) {}
  const char* Name() const override { return "LoligoCountingFileSystem"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* out, IODebugContext* dbg) override {
    Counter which = kind(name);
    FileOptions told = with_cause(options, which);
    return counted(which, target()->NewWritableFile(name, told, out, dbg), out);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* out, IODebugContext* dbg) override {
    Counter which = kind(name);
    FileOptions told = with_cause(options, which);
    return counted(which, target()->ReopenWritableFile(name, told, out, dbg), out);
  }
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old,
                             const FileOptions& options, std::unique_ptr<FSWritableFile>* out,
                             IODebugContext* dbg) override {
    Counter which = kind(name);
    FileOptions told = with_cause(options, which);
    return counted(which, target()->ReuseWritableFile(name, old, told, out, dbg), out);
  }
  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* out,
                             IODebugContext* dbg) override {
    IOStatus status = target()->NewSequentialFile(name, options, out, dbg);
    if (status.ok()) out->reset(new CountedSequential(std::move(*out), counters_));
    return status;
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* out,
                               IODebugContext* dbg) override {
    IOStatus status = target()->NewRandomAccessFile(name, options, out, dbg);
    if (status.ok()) out->reset(new CountedRandomAccess(std::move(*out), counters_));
    return status;
  }

 private:
  static FileOptions with_cause(const FileOptions& options, Counter which) {
    FileOptions told = options;
    told.io_options.property_bag[kCauseProperty] = std::to_string(which);
    return told;
  }
  IOStatus counted(Counter which, IOStatus status, std::unique_ptr<FSWritableFile>* out) {
    if (status.ok()) out->reset(new CountedWritable(std::move(*out), counters_, which));
    return status;
  }
  Counter kind(const std::string& path) {
    std::string name = base_name(path);
    if (ends_with(name, ".log")) return kWalBytes;
    if (ends_with(name, ".sst")) return reasons_->of_table(path);
    if (name.compare(0, 8, "MANIFEST") == 0 || name == "CURRENT" || ends_with(name, ".dbtmp"))
      return kManifestBytes;
    return kOtherBytes;
  }
  Counters* counters_;
  std::shared_ptr<Reasons> reasons_;
};

// How a database is opened: it must be there; it is made if it is not; nothing is written.
enum Mode : int { kOpen = 0, kCreate = 1, kLook = 2 };

// RocksDB's own log would be bytes on the device that nobody asked for.
class SilentLogger : public Logger {
 public:
  SilentLogger() : Logger(InfoLogLevel::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

int outcome(const Status& status, std::string* error) {
  if (status.ok()) return kOk;
  *error = status.ToString();
  if (status.IsCorruption()) return kCorrupt;
  if (status.IsNoSpace() || status.subcode() == Status::kSpaceLimit) return kNoSpace;
  // What a flush in the background met is told later, as the text of another status.
  if (status.IsIncomplete() && error->find("No space left") != std::string::npos) return kNoSpace;
  if (status.IsInvalidArgument()) return kOptions;
  return kStorage;
}

class Rocks : public Engine {
 public:
  // Counters must outlive the file system, which must outlive the database.
  ~Rocks() override {
    db_.reset();
    env_.reset();
  }

  int open(const std::string& path, const std::string& text, uint64_t cache_len, Mode mode,
           const std::shared_ptr<FileSystem>& under, std::string* error) {
    auto reasons = std::make_shared<Reasons>();
    env_ = NewCompositeEnv(std::make_shared<CountingFileSystem>(under, &counters, reasons));
    Options options;
    options.env = env_.get();
    options.info_log = std::make_shared<SilentLogger>();
    options.create_if_missing = mode == kCreate;
    options.paranoid_checks = true;
    // Statistics dumps are one more writer; the counters above are exact.
    options.stats_dump_period_sec = 0;
    options.stats_persist_period_sec = 0;
    ConfigOptions config;
    config.env = env_.get();
    config.ignore_unknown_options = false;
    Options given;
    Status status = GetOptionsFromString(config, options, text, &given);
    if (!status.ok()) {
      *error = "options \"" + text + "\": " + status.ToString();
      return kOptions;
    }
    given.env = env_.get();
    given.listeners.push_back(std::make_shared<TableListener>(reasons));
    if (cache_len > 0) {
      BlockBasedTableOptions table;
      if (auto* theirs = given.table_factory->GetOptions<BlockBasedTableOptions>()) table = *theirs;
      table.block_cache = NewLRUCache(cache_len);
      given.table_factory.reset(NewBlockBasedTableFactory(table));
    }
    DB* db = nullptr;
    status = mode == kLook ? DB::OpenForReadOnly(given, path, &db) : DB::Open(given, path, &db);
    db_.reset(db);
    return outcome(status, error);
  }

  int get(const char* key, size_t len, Visit visit, void* context, std::string* error) override {
    PinnableSlice value;
    Slice name(key, len);
    Status status = db_->Get(ReadOptions(), db_->DefaultColumnFamily(), name, &value);
    if (status.IsNotFound()) return kOk;
    if (status.ok()) visit(context, key, len, value.data(), value.size());
    return outcome(status, error);
  }

  int scan(const char* start, size_t start_len, const char* end, size_t end_len, bool backwards,
           Visit visit, void* context, std::string* error) override {
    ReadOptions options;
    Slice lower(start, start_len), upper(end, end_len);
    options.iterate_lower_bound = &lower;
    if (end_len > 0) options.iterate_upper_bound = &upper;
    std::unique_ptr<Iterator> it(db_->NewIterator(options));
    if (backwards)
      it->SeekToLast();
    else
      it->Seek(lower);
    while (it->Valid()) {
      Slice key = it->key(), value = it->value();
      if (!visit(context, key.data(), key.size(), value.data(), value.size())) break;
      if (backwards)
        it->Prev();
      else
        it->Next();
    }
    return outcome(it->status(), error);
  }

  int write(const Op* ops, size_t count, bool sync, std::string* error) override {
    if (count == 0) {
      if (!sync) return kOk;
      // What earlier writes left in the log.
      return outcome(db_->FlushWAL(true), error);
    }
    WriteBatch batch;
    for (size_t i = 0; i < count; i++) {
      const Op& op = ops[i];
      Slice key(op.key, op.key_len), value(op.value, op.value_len);
      Status status;
      if (op.op == 0) {
        status = batch.Put(key, value);
      } else if (op.op == 1) {
        status = batch.Delete(key);
      } else {
        status = remove_range(&batch, ops, i);
      }
      if (!status.ok()) return outcome(status, error);
    }
    WriteOptions options;
    options.sync = sync;
    return outcome(db_->Write(options, &batch), error);
  }

  int compact(std::string* error) override {
    return outcome(db_->CompactRange(CompactRangeOptions(), nullptr, nullptr), error);
  }

  int range_bytes(const char* start, size_t start_len, const char* end, size_t end_len,
                  uint64_t* out, std::string* error) override {
    std::string last = last_key();
    Range range(Slice(start, start_len), end_len > 0 ? Slice(end, end_len) : Slice(last));
    SizeApproximationOptions options;
    options.include_memtables = true;
    options.include_files = true;
    Status status =
        db_->GetApproximateSizes(options, db_->DefaultColumnFamily(), &range, 1, out);
    return outcome(status, error);
  }

  // File by file, as compactions go that RocksDB begins by itself: one of everything might need as
  // much room again as there is.
  void reclaim() override {
    uint64_t entries = 0, deletions = 0;
    db_->GetIntProperty("rocksdb.num-entries-active-mem-table", &entries);
    db_->GetIntProperty("rocksdb.num-deletes-active-mem-table", &deletions);
    if (ranges_.exchange(0) > 0 || is_much(deletions, entries)) {
      FlushOptions options;
      options.wait = false;
      options.allow_write_stall = true;
      // One that fails tells so by the next write.
      db_->Flush(options).PermitUncheckedError();
    }
    std::map<std::string, std::string> tables;
    if (!db_->GetMapProperty(DB::Properties::kAggregatedTableProperties, &tables)) return;
    entries = strtoull(tables["num_entries"].c_str(), nullptr, 10);
    deletions = strtoull(tables["num_deletions"].c_str(), nullptr, 10);
    deletions += strtoull(tables["num_range_deletions"].c_str(), nullptr, 10) * kRangeKeysMax;
    if (is_much(deletions, entries))
      experimental::SuggestCompactRange(db_.get(), nullptr, nullptr).PermitUncheckedError();
  }

 private:
  static bool is_much(uint64_t deletions, uint64_t entries) {
    return deletions >= kDeletionsMin && deletions >= entries / kDeletionsShare;
  }

  // Deletes what the database and the operations before have in a range.
  Status remove_range(WriteBatch* batch, const Op* ops, size_t at) {
    Slice start(ops[at].key, ops[at].key_len), end(ops[at].value, ops[at].value_len);
    ReadOptions options;
    if (!end.empty()) options.iterate_upper_bound = &end;
    std::vector<std::string> keys;
    std::unique_ptr<Iterator> it(db_->NewIterator(options));
    for (it->Seek(start); it->Valid() && keys.size() <= kRangeKeysMax; it->Next())
      keys.push_back(it->key().ToString());
    Status status = it->status();
    if (!status.ok()) return status;
    if (keys.size() > kRangeKeysMax && !end.empty()) {
      ranges_++;
      return batch->DeleteRange(start, end);
    }
    for (; it->Valid(); it->Next()) keys.push_back(it->key().ToString());
    for (const std::string& key : keys) {
      status = batch->Delete(key);
      if (!status.ok()) return status;
    }
    for (size_t i = 0; i < at; i++) {
      Slice key(ops[i].key, ops[i].key_len);
      bool inside = key.compare(start) >= 0 && (end.empty() || key.compare(end) < 0);
      if (ops[i].op == 0 && inside) {
        status = batch->Delete(key);
        if (!status.ok()) return status;
      }
    }
    return it->status();
  }

  std::unique_ptr<Env> env_;
  std::unique_ptr<DB> db_;
  // Ranges deleted since the last flush that reclaim() began: no property tells of them.
  std::atomic<uint64_t> ranges_{0};
};

}  // namespace
}  // namespace loligo

extern "C" {

// Opens a database. mode: a Mode. file_system: null for the machine's, or a std::shared_ptr<FileSystem>* of the
// caller's, which is copied.
int loligo_rocks_open(const char* path, const char* options, uint64_t cache_len, int mode,
                      const void* file_system, loligo::Engine** out, char** error) {
  std::shared_ptr<FileSystem> under = FileSystem::Default();
  if (file_system) under = *static_cast<const std::shared_ptr<FileSystem>*>(file_system);
  std::unique_ptr<loligo::Rocks> rocks(new loligo::Rocks);
  std::string text;
  int outcome = rocks->open(path, options, cache_len, static_cast<loligo::Mode>(mode), under, &text);
  *error = outcome == loligo::kOk ? nullptr : strdup(text.c_str());
  *out = outcome == loligo::kOk ? rocks.release() : nullptr;
  return outcome;
}

}  // extern "C"
