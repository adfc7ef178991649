// LevelDB behind engine.h, over an environment that counts every byte by the kind of its file.
//
// LevelDB has no listeners; but it says in its log that it begins a table of what the write-ahead
// log holds ("Level-0 table #N: started"), with the number that is in the file's name. Its log is
// otherwise swallowed: it would be bytes on the device that nobody asked for.
#include "engine.h"

#include <atomic>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

namespace loligo {
namespace {

using leveldb::Slice;
using leveldb::Status;

// Numbers of the tables that are flushes.
class Flushes : public leveldb::Logger {
 public:
  void Logv(const char* format, std::va_list args) override {
    static const char kStarted[] = "Level-0 table #%llu: started";
    if (strncmp(format, kStarted, sizeof kStarted - 1) != 0) return;
    unsigned long long number = va_arg(args, unsigned long long);
    std::lock_guard<std::mutex> lock(mutex_);
    numbers_.insert(number);
  }
  bool take(unsigned long long number) {
    std::lock_guard<std::mutex> lock(mutex_);
    return numbers_.erase(number) > 0;
  }

 private:
  std::mutex mutex_;
  std::set<unsigned long long> numbers_;
};

// A log is synced before it is let go: LevelDB begins another one when a memtable is full, and a
// write with sync that comes then makes only the new one durable, not the writes without sync
// that are still in the old one. A sync that fails there is noted in `lost`.
class CountedWritable : public leveldb::WritableFile {
 public:
  CountedWritable(leveldb::WritableFile* file, Counters* counters, Counter which,
                  std::atomic<bool>* lost)
      : file_(file), counters_(counters), which_(which), lost_(lost) {}
  ~CountedWritable() override { settle(); }
  Status Append(const Slice& data) override {
    counters_->add(which_, data.size());
    unsynced_ = which_ == kWalBytes;
    return file_->Append(data);
  }
  Status Close() override {
    settle();
    return file_->Close();
  }
  Status Flush() override { return file_->Flush(); }
  Status Sync() override {
    counters_->add(kSyncs, 1);
    Status status = file_->Sync();
    if (status.ok()) unsynced_ = false;
    return status;
  }

 private:
  void settle() {
    if (unsynced_ && !Sync().ok()) lost_->store(true);
    unsynced_ = false;
  }

  std::unique_ptr<leveldb::WritableFile> file_;
  Counters* counters_;
  Counter which_;
  std::atomic<bool>* lost_;
  bool unsynced_ = false;
};

class CountedSequential : public leveldb::SequentialFile {
 public:
  CountedSequential(leveldb::SequentialFile* file, Counters* counters)
      : file_(file), counters_(counters) {}
  Status Read(size_t n, Slice* result, char* scratch) override {
    Status status = file_->Read(n, result, scratch);
    if (status.ok()) counters_->add(kReadBytes, result->size());
    return status;
  }
  Status Skip(uint64_t n) override { return file_->Skip(n); }

 private:
  std::unique_ptr<leveldb::SequentialFile> file_;
  Counters* counters_;
};

class CountedRandomAccess : public leveldb::RandomAccessFile {
 public:
  CountedRandomAccess(leveldb::RandomAccessFile* file, Counters* counters)
      : file_(file), counters_(counters) {}
  Status Read(uint64_t offset, size_t n, Slice* result, char* scratch) const override {
    Status status = file_->Read(offset, n, result, scratch);
    if (status.ok()) counters_->add(kReadBytes, result->size());
    return status;
  }

 private:
  std::unique_ptr<leveldb::RandomAccessFile> file_;
  Counters* counters_;
};

class CountingEnv : public leveldb::EnvWrapper {
 public:
  CountingEnv(Counters* counters, Flushes* flushes)
      : EnvWrapper(leveldb::Env::Default()), counters_(counters), flushes_(flushes) {}

  Status NewWritableFile(const std::string& name, leveldb::WritableFile** out) override {
    Status status = target()->NewWritableFile(name, out);
    if (status.ok()) *out = new CountedWritable(*out, counters_, kind(name), &lost_);
    return status;
  }
  Status NewAppendableFile(const std::string& name, leveldb::WritableFile** out) override {
    Status status = target()->NewAppendableFile(name, out);
    if (status.ok()) *out = new CountedWritable(*out, counters_, kind(name), &lost_);
    return status;
  }
  Status NewSequentialFile(const std::string& name, leveldb::SequentialFile** out) override {
    Status status = target()->NewSequentialFile(name, out);
    if (status.ok()) *out = new CountedSequential(*out, counters_);
    return status;
  }
  Status NewRandomAccessFile(const std::string& name, leveldb::RandomAccessFile** out) override {
    Status status = target()->NewRandomAccessFile(name, out);
    if (status.ok()) *out = new CountedRandomAccess(*out, counters_);
    return status;
  }

  // Whether writes may be gone that a write with sync was to make durable.
  bool lost() const { return lost_.load(); }

 private:
  Counter kind(const std::string& path) {
    std::string name = base_name(path);
    if (ends_with(name, ".log")) return kWalBytes;
    if (ends_with(name, ".ldb") || ends_with(name, ".sst")) {
      bool flush = flushes_->take(strtoull(name.c_str(), nullptr, 10));
      return flush ? kFlushBytes : kCompactionBytes;
    }
    if (name.compare(0, 8, "MANIFEST") == 0 || name == "CURRENT" || ends_with(name, ".dbtmp"))
      return kManifestBytes;
    return kOtherBytes;
  }
  Counters* counters_;
  Flushes* flushes_;
  std::atomic<bool> lost_{false};
};

int outcome(const Status& status, std::string* error) {
  if (status.ok()) return kOk;
  *error = status.ToString();
  if (status.IsCorruption()) return kCorrupt;
  if (status.IsInvalidArgument()) return kOptions;
  // LevelDB knows an I/O error's number only as its text.
  if (error->find(strerror(ENOSPC)) != std::string::npos) return kNoSpace;
  return kStorage;
}

// Deletions before a compaction for their sake.
constexpr uint64_t kDeletionsMin = 1000;

class Level : public Engine {
 public:
  Level() : env_(&counters, &flushes_) {}
  ~Level() override {
    if (compaction_.joinable()) compaction_.join();
    db_.reset();
  }

  int open(const std::string& path, uint64_t write_buffer_len, uint64_t cache_len,
           uint64_t block_len, int bloom_bits, bool compress, bool create, std::string* error) {
    leveldb::Options options;
    options.env = &env_;
    options.info_log = &flushes_;
    options.create_if_missing = create;
    // A log's torn end has been cut off before (level_log.rs).
    options.paranoid_checks = true;
    options.compression = compress ? leveldb::kSnappyCompression : leveldb::kNoCompression;
    if (write_buffer_len > 0) options.write_buffer_size = write_buffer_len;
    if (block_len > 0) options.block_size = block_len;
    if (cache_len > 0) {
      cache_.reset(leveldb::NewLRUCache(cache_len));
      options.block_cache = cache_.get();
    }
    if (bloom_bits > 0) {
      filter_.reset(leveldb::NewBloomFilterPolicy(bloom_bits));
      options.filter_policy = filter_.get();
    }
    leveldb::DB* db = nullptr;
    Status status = leveldb::DB::Open(options, path, &db);
    db_.reset(db);
    return outcome(status, error);
  }

  int get(const char* key, size_t len, Visit visit, void* context, std::string* error) override {
    std::string value;
    Status status = db_->Get(checked(), Slice(key, len), &value);
    if (status.IsNotFound()) return kOk;
    if (status.ok()) visit(context, key, len, value.data(), value.size());
    return outcome(status, error);
  }

  int scan(const char* start, size_t start_len, const char* end, size_t end_len, bool backwards,
           Visit visit, void* context, std::string* error) override {
    Slice lower(start, start_len), upper(end, end_len);
    std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(checked()));
    if (!backwards) {
      it->Seek(lower);
    } else if (end_len == 0) {
      it->SeekToLast();
    } else {
      it->Seek(upper);
      if (it->Valid())
        it->Prev();
      else if (it->status().ok())
        it->SeekToLast();
    }
    while (it->Valid()) {
      Slice key = it->key(), value = it->value();
      if (key.compare(lower) < 0 || (end_len > 0 && key.compare(upper) >= 0)) break;
      if (!visit(context, key.data(), key.size(), value.data(), value.size())) break;
      if (backwards)
        it->Prev();
      else
        it->Next();
    }
    return outcome(it->status(), error);
  }

  int write(const Op* ops, size_t count, bool sync, std::string* error) override {
    if (count == 0 && !sync) return kOk;
    // An empty batch with sync makes all before it durable.
    leveldb::WriteBatch batch;
    for (size_t i = 0; i < count; i++) {
      const Op& op = ops[i];
      Slice key(op.key, op.key_len);
      if (op.op == 0) {
        batch.Put(key, Slice(op.value, op.value_len));
      } else if (op.op == 1) {
        batch.Delete(key);
        deletions_++;
      } else {
        Status status = remove_range(&batch, ops, i);
        if (!status.ok()) return outcome(status, error);
      }
    }
    leveldb::WriteOptions options;
    options.sync = sync;
    Status status = db_->Write(options, &batch);
    if (status.ok() && env_.lost())
      status = Status::IOError("a log could not be synced when the next one began");
    return outcome(status, error);
  }

  int compact(std::string*) override {
    db_->CompactRange(nullptr, nullptr);
    return kOk;
  }

  // Without what is in memory only: a write buffer at most.
  int range_bytes(const char* start, size_t start_len, const char* end, size_t end_len,
                  uint64_t* out, std::string*) override {
    std::string last = last_key();
    leveldb::Range range(Slice(start, start_len), end_len > 0 ? Slice(end, end_len) : Slice(last));
    db_->GetApproximateSizes(&range, 1, out);
    return kOk;
  }

  void reclaim() override {
    if (deletions_ < kDeletionsMin || compacting_.exchange(true)) return;
    deletions_ = 0;
    if (compaction_.joinable()) compaction_.join();
    compaction_ = std::thread([this] {
      db_->CompactRange(nullptr, nullptr);
      compacting_ = false;
    });
  }

 private:
  static leveldb::ReadOptions checked() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  // Deletes what the database and the operations before have in a range.
  Status remove_range(leveldb::WriteBatch* batch, const Op* ops, size_t at) {
    Slice start(ops[at].key, ops[at].key_len), end(ops[at].value, ops[at].value_len);
    std::unique_ptr<leveldb::Iterator> it(db_->NewIterator(checked()));
    for (it->Seek(start); it->Valid() && (end.empty() || it->key().compare(end) < 0); it->Next()) {
      batch->Delete(it->key());
      deletions_++;
    }
    for (size_t i = 0; i < at; i++) {
      Slice key(ops[i].key, ops[i].key_len);
      bool inside = key.compare(start) >= 0 && (end.empty() || key.compare(end) < 0);
      if (ops[i].op == 0 && inside) batch->Delete(key);
    }
    return it->status();
  }

  Flushes flushes_;
  CountingEnv env_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::DB> db_;
  // Since the last compaction that reclaim() began, and that one. What was deleted before the opening
  // nobody knows: perhaps enough.
  std::atomic<uint64_t> deletions_{kDeletionsMin};
  std::atomic<bool> compacting_{false};
  std::thread compaction_;
};

}  // namespace
}  // namespace loligo

extern "C" {

// Opens a database. A length of 0 is LevelDB's own default.
int loligo_level_open(const char* path, uint64_t write_buffer_len, uint64_t cache_len,
                      uint64_t block_len, int bloom_bits, int compress, int create,
                      loligo::Engine** out, char** error) {
  std::unique_ptr<loligo::Level> level(new loligo::Level);
  std::string text;
  int outcome = level->open(path, write_buffer_len, cache_len, block_len, bloom_bits,
                            compress != 0, create != 0, &text);
  *error = outcome == loligo::kOk ? nullptr : strdup(text.c_str());
  *out = outcome == loligo::kOk ? level.release() : nullptr;
  return outcome;
}

// Locks a database as one that opens it does.
int loligo_level_lock(const char* path, leveldb::FileLock** out, char** error) {
  std::string text;
  leveldb::Status status = leveldb::Env::Default()->LockFile(std::string(path) + "/LOCK", out);
  int outcome = loligo::outcome(status, &text);
  *error = outcome == loligo::kOk ? nullptr : strdup(text.c_str());
  return outcome;
}

void loligo_level_unlock(leveldb::FileLock* lock) { leveldb::Env::Default()->UnlockFile(lock); }

}  // extern "C"
