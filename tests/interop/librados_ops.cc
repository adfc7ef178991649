/* Compound operations for compare_ops.py, through librados' C++ API, which reaches more of them than the C API does.
 *
 *   ops_run(io, name, is_write, flags, mtime, ops) -> result, version, of each op its own result and what it gave
 *
 *   ops_list(io, filter) -> result, of each object its name and locator
 *
 * An op comes as its name, its flags, numbers and strings, all length-prefixed and little-endian; `Reader` has the layout. */
#include <rados/librados.h>
#include <rados/librados.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

using librados::bufferlist;
using std::string;

namespace {

// What an op's own result is when nothing has set it.
constexpr int UNSET = -9999;

struct Reader {
  const char *at;
  uint64_t number(int bytes) {
    uint64_t n = 0;
    memcpy(&n, at, bytes);
    at += bytes;
    return n;
  }
  string text() {
    size_t len = number(4);
    string s(at, len);
    at += len;
    return s;
  }
};

struct Writer {
  string out;
  void number(uint64_t n, int bytes) { out.append(reinterpret_cast<char *>(&n), bytes); }
  void text(const string &s) {
    number(s.size(), 4);
    out += s;
  }
};

// What an op gives; librados fills it while `operate` runs, so it stays where it is.
struct Outcome {
  int rval = UNSET;
  bufferlist data;
  uint64_t size = 0;
  timespec mtime = {};
  bool flag = false;
  std::map<string, bufferlist> vals;
  std::map<uint64_t, uint64_t> extents;
  std::set<string> keys;
  std::list<obj_watch_t> watchers;
  librados::snap_set_t snaps;
};

string bytes(bufferlist &bl) { return bl.to_str(); }

bufferlist buffer(const string &s) {
  bufferlist bl;
  bl.append(s.data(), s.size());
  return bl;
}

// The pointer that the C API's calls take: they know ranges of omap keys, the C++ API does not.
struct Write : librados::ObjectWriteOperation {
  rados_write_op_t c() { return reinterpret_cast<rados_write_op_t>(impl); }
};

// Numbers and strings of an op, in the order the script gives them.
struct Args {
  std::vector<uint64_t> n;
  std::vector<string> s;
};

bool add_common(librados::ObjectOperation &op, const string &name, Args &a, Outcome &o) {
  if (name == "assert_exists") op.assert_exists();
  else if (name == "assert_version") op.assert_version(a.n[0]);
  else if (name == "cmpext") op.cmpext(a.n[0], buffer(a.s[0]), &o.rval);
  else if (name == "cmpxattr") op.cmpxattr(a.s[0].c_str(), a.n[0], buffer(a.s[1]));
  else if (name == "cmpxattr_u64") op.cmpxattr(a.s[0].c_str(), a.n[0], a.n[1]);
  else if (name == "exec") {
    bufferlist in = buffer(a.s[2]);
    op.exec(a.s[0].c_str(), a.s[1].c_str(), in, &o.data, &o.rval);
  } else if (name == "omap_cmp") {
    std::map<string, std::pair<bufferlist, int>> wanted;
    for (size_t i = 0; i + 1 < a.s.size(); i += 2) wanted[a.s[i]] = {buffer(a.s[i + 1]), int(a.n[i / 2])};
    op.omap_cmp(wanted, &o.rval);
  } else return false;
  return true;
}

void add(Write &op, librados::IoCtx &io, const string &name, Args &a, Outcome &o) {
  if (add_common(op, name, a, o)) return;
  if (name == "create") op.create(a.n[0]);
  else if (name == "create_category") op.create(a.n[0], a.s[0]);
  else if (name == "write") op.write(a.n[0], buffer(a.s[0]));
  else if (name == "write_full") op.write_full(buffer(a.s[0]));
  else if (name == "writesame") op.writesame(a.n[0], a.n[1], buffer(a.s[0]));
  else if (name == "append") op.append(buffer(a.s[0]));
  else if (name == "remove") op.remove();
  else if (name == "truncate") op.truncate(a.n[0]);
  else if (name == "zero") op.zero(a.n[0], a.n[1]);
  else if (name == "rmxattr") op.rmxattr(a.s[0].c_str());
  else if (name == "setxattr") op.setxattr(a.s[0].c_str(), buffer(a.s[1]));
  else if (name == "tmap_update") op.tmap_update(buffer(a.s[0]));
  else if (name == "rollback") op.selfmanaged_snap_rollback(a.n[0]);
  else if (name == "omap_set") {
    std::map<string, bufferlist> vals;
    for (size_t i = 0; i + 1 < a.s.size(); i += 2) vals[a.s[i]] = buffer(a.s[i + 1]);
    op.omap_set(vals);
  } else if (name == "omap_set_header") op.omap_set_header(buffer(a.s[0]));
  else if (name == "omap_clear") op.omap_clear();
  else if (name == "omap_rm_keys") op.omap_rm_keys({a.s.begin(), a.s.end()});
  else if (name == "omap_rm_range")
    rados_write_op_omap_rm_range2(op.c(), a.s[0].data(), a.s[0].size(), a.s[1].data(), a.s[1].size());
  else if (name == "copy_from") op.copy_from(a.s[0], io, a.n[0], a.n[1]);
  else if (name == "copy_from2") op.copy_from2(a.s[0], io, a.n[0], a.n[1], a.n[2], a.n[3]);
  else if (name == "undirty") op.undirty();
  else if (name == "set_alloc_hint") op.set_alloc_hint2(a.n[0], a.n[1], a.n[2]);
  else if (name == "cache_pin") op.cache_pin();
  else if (name == "cache_unpin") op.cache_unpin();
  else if (name == "tier_promote") op.tier_promote();
  else if (name == "unset_manifest") op.unset_manifest();
  else abort();
}

void add(librados::ObjectReadOperation &op, const string &name, Args &a, Outcome &o) {
  if (add_common(op, name, a, o)) return;
  if (name == "stat") op.stat2(&o.size, &o.mtime, &o.rval);
  else if (name == "getxattr") op.getxattr(a.s[0].c_str(), &o.data, &o.rval);
  else if (name == "getxattrs") op.getxattrs(&o.vals, &o.rval);
  else if (name == "read") op.read(a.n[0], a.n[1], &o.data, &o.rval);
  else if (name == "sparse_read") op.sparse_read(a.n[0], a.n[1], &o.extents, &o.data, &o.rval);
  else if (name == "checksum")
    op.checksum(rados_checksum_type_t(a.n[0]), buffer(a.s[0]), a.n[1], a.n[2], a.n[3], &o.data, &o.rval);
  else if (name == "omap_get_vals") op.omap_get_vals2(a.s[0], a.s[1], a.n[0], &o.vals, &o.flag, &o.rval);
  else if (name == "omap_get_keys") op.omap_get_keys2(a.s[0], a.n[0], &o.keys, &o.flag, &o.rval);
  else if (name == "omap_get_header") op.omap_get_header(&o.data, &o.rval);
  else if (name == "omap_get_vals_by_keys") op.omap_get_vals_by_keys({a.s.begin(), a.s.end()}, &o.vals, &o.rval);
  else if (name == "list_watchers") op.list_watchers(&o.watchers, &o.rval);
  else if (name == "list_snaps") op.list_snaps(&o.snaps, &o.rval);
  else if (name == "is_dirty") op.is_dirty(&o.flag, &o.rval);
  else if (name == "cache_flush") op.cache_flush();
  else if (name == "cache_try_flush") op.cache_try_flush();
  else if (name == "cache_evict") op.cache_evict();
  else if (name == "tier_flush") op.tier_flush();
  else if (name == "tier_evict") op.tier_evict();
  else abort();
}

void put(Writer &w, Outcome &o) {
  w.number(uint32_t(o.rval), 4);
  w.text(bytes(o.data));
  w.number(o.size, 8);
  w.number(o.mtime.tv_sec, 8);
  w.number(o.mtime.tv_nsec, 8);
  w.number(o.flag, 1);
  w.number(o.vals.size(), 4);
  for (auto &[key, value] : o.vals) w.text(key), w.text(bytes(value));
  w.number(o.keys.size(), 4);
  for (auto &key : o.keys) w.text(key);
  w.number(o.extents.size(), 4);
  for (auto &[off, len] : o.extents) w.number(off, 8), w.number(len, 8);
  w.number(o.watchers.size(), 4);
  w.number(o.snaps.seq, 8);
  w.number(o.snaps.clones.size(), 4);
  for (auto &clone : o.snaps.clones) {
    w.number(clone.cloneid, 8);
    w.number(clone.size, 8);
    w.number(clone.snaps.size(), 4);
    for (auto snap : clone.snaps) w.number(snap, 8);
    w.number(clone.overlap.size(), 4);
    for (auto &[off, len] : clone.overlap) w.number(off, 8), w.number(len, 8);
  }
}

char *given(Writer &w, size_t *out_len) {
  *out_len = w.out.size();
  char *out = static_cast<char *>(malloc(w.out.size()));
  memcpy(out, w.out.data(), w.out.size());
  return out;
}

} // namespace

extern "C" char *ops_run(rados_ioctx_t c_io, const char *oid, size_t oid_len, int is_write, int flags,
                         int64_t mtime, const char *ops, size_t *out_len) {
  librados::IoCtx io;
  librados::IoCtx::from_rados_ioctx_t(c_io, io);
  Write write;
  librados::ObjectReadOperation read;
  std::deque<Outcome> outcomes;
  Reader r{ops};
  for (auto left = r.number(4); left > 0; --left) {
    string name = r.text();
    int op_flags = r.number(4);
    Args a;
    for (auto n = r.number(4); n > 0; --n) a.n.push_back(r.number(8));
    for (auto n = r.number(4); n > 0; --n) a.s.push_back(r.text());
    auto &outcome = outcomes.emplace_back();
    if (is_write) add(write, io, name, a, outcome);
    else add(read, name, a, outcome);
    if (op_flags && is_write) write.set_op_flags2(op_flags);
    else if (op_flags) read.set_op_flags2(op_flags);
  }
  if (mtime >= 0) {
    timespec ts = {mtime, 5};
    write.mtime2(&ts);
  }
  string name(oid, oid_len);
  bufferlist unused;
  int result = is_write ? io.operate(name, &write, flags) : io.operate(name, &read, &unused, flags);
  Writer w;
  w.number(uint32_t(result), 4);
  w.number(io.get_last_version(), 8);
  for (auto &outcome : outcomes) put(w, outcome);
  return given(w, out_len);
}

extern "C" char *ops_list(rados_ioctx_t c_io, const char *filter, size_t filter_len, size_t *out_len) {
  librados::IoCtx io;
  librados::IoCtx::from_rados_ioctx_t(c_io, io);
  int result = 0;
  std::vector<std::pair<string, string>> found;
  try {
    bufferlist wanted = buffer({filter, filter_len});
    for (auto it = io.nobjects_begin(wanted); it != io.nobjects_end(); ++it)
      found.emplace_back(it->get_oid(), it->get_locator());
  } catch (std::system_error &e) {
    result = -e.code().value();
  }
  Writer w;
  w.number(uint32_t(result), 4);
  w.number(found.size(), 4);
  for (auto &[name, locator] : found) w.text(name), w.text(locator);
  return given(w, out_len);
}

extern "C" void ops_free(char *out) { free(out); }
