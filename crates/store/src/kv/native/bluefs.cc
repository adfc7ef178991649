// RocksDB's file-system interface over BlueFS, which is Rust's (src/bluestore/bluefs/face.rs): every
// call here is one call there. Nothing throws; what the other side answers becomes an IOStatus.
#include "engine.h"

#include <memory>
#include <string>
#include <vector>

#include <rocksdb/file_system.h>
#include <rocksdb/io_status.h>

using namespace ROCKSDB_NAMESPACE;

namespace loligo {
namespace {

// face.rs has the same numbers.
enum Answer : int { kDone = 0, kNotFound = 1, kFull = 2, kBroken = 3, kExists = 4, kDamaged = 5 };

// What a name stands for.
enum Kind : int { kNothing = 0, kFile = 1, kDir = 2 };

// Called with each name in a directory.
typedef void (*Name)(void* context, const char* name, size_t len);

// BlueFS's functions. `fs`, `writer` and `reader` are its own pointers; paths are not terminated.
struct Calls {
  void (*drop)(void* fs);
  int (*create)(void* fs, const char* path, size_t len, int cause, void** writer);
  int (*append)(void* writer, const char* data, size_t len);
  int (*sync)(void* writer);
  uint64_t (*written)(void* writer);
  void (*drop_writer)(void* writer);
  int (*open)(void* fs, const char* path, size_t len, void** reader);
  int (*read)(void* reader, uint64_t offset, size_t len, char* out, size_t* done);
  void (*drop_reader)(void* reader);
  int (*kind)(void* fs, const char* path, size_t len);
  int (*size)(void* fs, const char* path, size_t len, uint64_t* size);
  int (*children)(void* fs, const char* path, size_t len, Name name, void* context);
  int (*make_dir)(void* fs, const char* path, size_t len);
  int (*remove_dir)(void* fs, const char* path, size_t len);
  int (*remove)(void* fs, const char* path, size_t len);
  int (*rename)(void* fs, const char* from, size_t from_len, const char* to, size_t to_len);
  int (*sync_names)(void* fs);
  int (*lock)(void* fs, const char* path, size_t len);
  void (*unlock)(void* fs, const char* path, size_t len);
  uint64_t (*free_len)(void* fs);
};

IOStatus status(int answer, const std::string& path) {
  switch (answer) {
    case kDone:
      return IOStatus::OK();
    case kNotFound:
      return IOStatus::NotFound(path);
    case kFull:
      return IOStatus::NoSpace(path, "bluefs is full");
    case kDamaged:
      return IOStatus::Corruption(path, "bluefs");
    case kExists:
      return IOStatus::IOError(path, "exists, or is in use");
    default:
      return IOStatus::IOError(path, "the device under bluefs failed");
  }
}

// The file system on the other side: its pointer is dropped with the last that uses it.
struct Shared {
  Shared(void* fs, const Calls& calls) : fs(fs), calls(calls) {}
  ~Shared() { calls.drop(fs); }
  void* fs;
  Calls calls;
};
typedef std::shared_ptr<Shared> SharedPtr;

class Writable : public FSWritableFile {
 public:
  Writable(SharedPtr shared, void* writer, std::string path)
      : shared_(std::move(shared)), writer_(writer), path_(std::move(path)) {}
  ~Writable() override { shared_->calls.drop_writer(writer_); }

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return status(shared_->calls.append(writer_, data.data(), data.size()), path_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    return status(shared_->calls.sync(writer_), path_);
  }
  // What is appended stays in memory until a sync, or until there is much of it.
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    return status(shared_->calls.sync(writer_), path_);
  }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    return shared_->calls.written(writer_);
  }

 private:
  SharedPtr shared_;
  void* writer_;
  std::string path_;
};

class Opened {
 public:
  Opened(SharedPtr shared, void* reader, std::string path)
      : shared_(std::move(shared)), reader_(reader), path_(std::move(path)) {}
  ~Opened() { shared_->calls.drop_reader(reader_); }
  IOStatus read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
    size_t done = 0;
    int answer = shared_->calls.read(reader_, offset, n, scratch, &done);
    *result = Slice(scratch, answer == kDone ? done : 0);
    return status(answer, path_);
  }

 private:
  SharedPtr shared_;
  void* reader_;
  std::string path_;
};

class Sequential : public FSSequentialFile {
 public:
  explicit Sequential(std::unique_ptr<Opened> file) : file_(std::move(file)) {}
  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    IOStatus answer = file_->read(at_, n, result, scratch);
    at_ += result->size();
    return answer;
  }
  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<Opened> file_;
  uint64_t at_ = 0;
};

class RandomAccess : public FSRandomAccessFile {
 public:
  explicit RandomAccess(std::unique_ptr<Opened> file) : file_(std::move(file)) {}
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return file_->read(offset, n, result, scratch);
  }

 private:
  std::unique_ptr<Opened> file_;
};

class Directory : public FSDirectory {
 public:
  explicit Directory(SharedPtr shared) : shared_(std::move(shared)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return status(shared_->calls.sync_names(shared_->fs), "directory");
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  SharedPtr shared_;
};

class Lock : public FileLock {
 public:
  explicit Lock(std::string path) : path(std::move(path)) {}
  std::string path;
};

void add_name(void* context, const char* name, size_t len) {
  static_cast<std::vector<std::string>*>(context)->emplace_back(name, len);
}

class BlueFileSystem : public FileSystem {
 public:
  explicit BlueFileSystem(SharedPtr shared) : shared_(std::move(shared)) {}
  const char* Name() const override { return "LoligoBlueFS"; }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* out, IODebugContext*) override {
    int cause = kOtherBytes;
    auto told = options.io_options.property_bag.find(kCauseProperty);
    if (told != options.io_options.property_bag.end()) cause = atoi(told->second.c_str());
    void* writer = nullptr;
    int answer = calls().create(fs(), path.data(), path.size(), cause, &writer);
    out->reset(answer == kDone ? new Writable(shared_, writer, path) : nullptr);
    return status(answer, path);
  }
  IOStatus NewSequentialFile(const std::string& path, const FileOptions&,
                             std::unique_ptr<FSSequentialFile>* out, IODebugContext*) override {
    std::unique_ptr<Opened> file;
    IOStatus answer = open(path, &file);
    out->reset(answer.ok() ? new Sequential(std::move(file)) : nullptr);
    return answer;
  }
  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions&,
                               std::unique_ptr<FSRandomAccessFile>* out,
                               IODebugContext*) override {
    std::unique_ptr<Opened> file;
    IOStatus answer = open(path, &file);
    out->reset(answer.ok() ? new RandomAccess(std::move(file)) : nullptr);
    return answer;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions&,
                        std::unique_ptr<FSDirectory>* out, IODebugContext*) override {
    if (kind(path) != kDir) return IOStatus::NotFound(path);
    out->reset(new Directory(shared_));
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& path, const IOOptions&, IODebugContext*) override {
    return kind(path) == kNothing ? IOStatus::NotFound(path) : IOStatus::OK();
  }
  IOStatus GetChildren(const std::string& path, const IOOptions&, std::vector<std::string>* out,
                       IODebugContext*) override {
    out->clear();
    return status(calls().children(fs(), path.data(), path.size(), add_name, out), path);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions&, IODebugContext*) override {
    return status(calls().remove(fs(), path.data(), path.size()), path);
  }
  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    if (kind(path) != kNothing) return status(kExists, path);
    return status(calls().make_dir(fs(), path.data(), path.size()), path);
  }
  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions&,
                              IODebugContext*) override {
    return status(calls().make_dir(fs(), path.data(), path.size()), path);
  }
  IOStatus DeleteDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return status(calls().remove_dir(fs(), path.data(), path.size()), path);
  }
  IOStatus GetFileSize(const std::string& path, const IOOptions&, uint64_t* size,
                       IODebugContext*) override {
    return status(calls().size(fs(), path.data(), path.size(), size), path);
  }
  // Nothing here has a time; RocksDB asks only for files that it keeps for a while.
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, uint64_t* time,
                                   IODebugContext*) override {
    *time = 0;
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return status(calls().rename(fs(), from.data(), from.size(), to.data(), to.size()), from);
  }
  IOStatus LockFile(const std::string& path, const IOOptions&, FileLock** lock,
                    IODebugContext*) override {
    int answer = calls().lock(fs(), path.data(), path.size());
    *lock = answer == kDone ? new Lock(path) : nullptr;
    return status(answer, path);
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    // It is one that LockFile made.
    Lock* ours = static_cast<Lock*>(lock);
    calls().unlock(fs(), ours->path.data(), ours->path.size());
    delete ours;
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string* path, IODebugContext*) override {
    *path = "test";
    return IOStatus::OK();
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* out,
                           IODebugContext*) override {
    *out = path;
    return IOStatus::OK();
  }
  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t* free,
                        IODebugContext*) override {
    *free = calls().free_len(fs());
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is_dir,
                       IODebugContext*) override {
    *is_dir = kind(path) == kDir;
    return kind(path) == kNothing ? IOStatus::NotFound(path) : IOStatus::OK();
  }

 private:
  const Calls& calls() const { return shared_->calls; }
  void* fs() const { return shared_->fs; }
  int kind(const std::string& path) const { return calls().kind(fs(), path.data(), path.size()); }
  IOStatus open(const std::string& path, std::unique_ptr<Opened>* out) {
    void* reader = nullptr;
    int answer = calls().open(fs(), path.data(), path.size(), &reader);
    if (answer == kDone) out->reset(new Opened(shared_, reader, path));
    return status(answer, path);
  }
  SharedPtr shared_;
};

}  // namespace
}  // namespace loligo

extern "C" {

// A std::shared_ptr<FileSystem>* over what `fs` is to `calls`; the last to use it drops `fs`.
void* loligo_bluefs_new(void* fs, const void* calls) {
  auto shared = std::make_shared<loligo::Shared>(fs, *static_cast<const loligo::Calls*>(calls));
  auto made = std::make_shared<loligo::BlueFileSystem>(std::move(shared));
  return new std::shared_ptr<FileSystem>(std::move(made));
}

void loligo_bluefs_delete(void* pointer) {
  delete static_cast<std::shared_ptr<FileSystem>*>(pointer);
}

}  // extern "C"
