/* What a C program sees of librados 16.2: connect, write, read, xattr, omap, list, remove.
 *   librados_c CONF POOL        prints "ok" when everything was as it should be */
#include <rados/librados.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what, want)                                                      \
  do {                                                                         \
    long got = (what);                                                         \
    if (got != (long)(want)) {                                                 \
      fprintf(stderr, "line %d: %s gave %ld, not %ld\n", __LINE__, #what, got, \
              (long)(want));                                                   \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

int main(int argc, char **argv) {
  rados_t cluster;
  rados_ioctx_t io;
  char buf[64] = {0};
  uint64_t size;
  time_t mtime;
  const char *entry;
  int found = 0;
  if (argc != 3) return 2;
  CHECK(rados_create(&cluster, "admin"), 0);
  CHECK(rados_conf_read_file(cluster, argv[1]), 0);
  CHECK(rados_connect(cluster), 0);
  CHECK(rados_ioctx_create(cluster, argv[2], &io), 0);
  CHECK(rados_write_full(io, "c-object", "hello, C", 8), 0);
  CHECK(rados_read(io, "c-object", buf, sizeof buf, 0), 8);
  CHECK(memcmp(buf, "hello, C", 8), 0);
  CHECK(rados_stat(io, "c-object", &size, &mtime), 0);
  CHECK(size, 8);
  CHECK(rados_setxattr(io, "c-object", "attr", "value", 5), 0);
  CHECK(rados_getxattr(io, "c-object", "attr", buf, sizeof buf), 5);

  rados_write_op_t wop = rados_create_write_op();
  const char *keys[] = {"k1", "k2"}, *vals[] = {"v1", "v2"};
  size_t lens[] = {2, 2};
  rados_write_op_omap_set(wop, keys, vals, lens, 2);
  rados_write_op_append(wop, "!", 1);
  CHECK(rados_write_op_operate(wop, io, "c-object", NULL, 0), 0);
  rados_release_write_op(wop);

  rados_read_op_t rop = rados_create_read_op();
  rados_omap_iter_t iter;
  unsigned char more;
  int rc1 = -1;
  rados_read_op_omap_get_vals2(rop, "", "", 10, &iter, &more, &rc1);
  CHECK(rados_read_op_operate(rop, io, "c-object", 0), 0);
  CHECK(rc1, 0);
  CHECK(rados_omap_iter_size(iter), 2);
  rados_omap_get_end(iter);
  rados_release_read_op(rop);

  rados_list_ctx_t list;
  CHECK(rados_nobjects_list_open(io, &list), 0);
  while (rados_nobjects_list_next(list, &entry, NULL, NULL) == 0) found |= !strcmp(entry, "c-object");
  rados_nobjects_list_close(list);
  CHECK(found, 1);

  rados_completion_t done;
  CHECK(rados_aio_create_completion2(NULL, NULL, &done), 0);
  CHECK(rados_aio_remove(io, "c-object", done), 0);
  CHECK(rados_aio_wait_for_complete(done), 0);
  CHECK(rados_aio_get_return_value(done), 0);
  rados_aio_release(done);
  CHECK(rados_stat(io, "c-object", &size, &mtime), -2);
  rados_ioctx_destroy(io);
  rados_shutdown(cluster);
  puts("ok");
  return 0;
}
