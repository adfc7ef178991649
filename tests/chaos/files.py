"""The judge of model.py over files: each thread has a mount of its own (libcephfs), and what is an object there is a file here, replaced by
renaming another over it, or appended to; keys are the name of a file, which is renamed. Run by chaos.py.

    files.py CONF FILE_SYSTEM SEED REPORT

What is written is synced; a rename is done when the MDS says so.
"""
import os
import sys

import cephfs

from model import Model, Wrong

LISTINGS_MAX = 20


class Mount:
    def __init__(self, conf, file_system):
        self.fs = cephfs.LibCephFS(auth_id="admin", conffile=conf)
        for option, value in {"client_mount_timeout": "120", "admin_socket": ""}.items():
            self.fs.conf_set(option, value)
        self.fs.mount(mount_root=b"/", filesystem_name=os.fsencode(file_system))

    def path(self, name):
        """Each writer's files have a folder, and each second folder another MDS."""
        writer = name.split("-")[-2]
        return f"/w{writer}/{name}"

    def folder(self, name):
        folder = os.path.dirname(self.path(name))
        try:
            self.fs.mkdir(folder, 0o755)
        except cephfs.ObjectExists:
            return
        self.fs.setxattr(folder, "ceph.dir.pin", str(int(folder[2:]) % 2).encode(), 0)

    def write(self, path, flags, data):
        fd = self.fs.open(path, flags, 0o644)
        try:
            written = self.fs.write(fd, data, -1)
            if written != len(data):
                raise Wrong(f"{path}: {written} of {len(data)} bytes were written")
            self.fs.fsync(fd, 0)
            # What another client has just asked for is on its way to the MDS already: libcephfs 16.2 then ends fsync at once (on a real Ceph,
            # too), and an MDS that takes over from one that dies answers others before it is told again.
            self.fs.sync_fs()
        finally:
            self.fs.close(fd)

    def write_full(self, name, data):
        self.folder(name)
        self.write(f"{self.path(name)}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, data)
        self.fs.rename(f"{self.path(name)}.new", self.path(name))

    def append(self, name, data):
        self.write(self.path(name), os.O_WRONLY | os.O_APPEND, data)

    def read(self, name):
        try:
            fd = self.fs.open(self.path(name), "r")
        except cephfs.ObjectNotFound:
            return None
        try:
            # No more than is there: where a file grows while it is read up to its end, libcephfs 16.2 gives what it read last alone (of a real
            # Ceph, too).
            size = self.fs.fstat(fd).st_size
            data = self.fs.read(fd, 0, size)
            if len(data) != size:
                raise Wrong(f"{name}: {len(data)} of {size} bytes were read")
            return data
        finally:
            self.fs.close(fd)

    def set_key(self, name, version):
        path = self.path(name)
        if version == 1:
            self.folder(name)
            self.fs.mkdir(path, 0o755)
            self.fs.close(self.fs.open(f"{path}/1", "w", 0o644))
        else:
            self.fs.rename(f"{path}/{version - 1}", f"{path}/{version}")

    def key(self, name):
        for _ in range(LISTINGS_MAX):
            try:
                with self.fs.opendir(self.path(name)) as folder:
                    found = [int(entry.d_name) for entry in iter(folder.readdir, None) if entry.d_name not in (b".", b"..")]
            except cephfs.ObjectNotFound:
                return 0
            # Who lists while names change may see a file under both of its names, or under none.
            if found:
                if max(found) - min(found) >= len(found):
                    raise Wrong(f"{name}: a file has the names {found}")
                return max(found)
        return 0

    def close(self):
        self.fs.unmount()
        self.fs.shutdown()


if __name__ == "__main__":
    sys.exit(Model(Mount, *sys.argv[1:4]).run(sys.argv[4]))
