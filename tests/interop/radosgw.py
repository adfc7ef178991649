"""An unmodified `radosgw` of Ceph 16.2 on a cluster: started, asked by S3 (boto3) and by `radosgw-admin`."""
import json
import os
import pathlib
import socket
import subprocess

import boto3
from botocore.config import Config

from cluster import free_port

KEY, SECRET = "AKEY", "SKEY"


class Gateway:
    """`with Gateway(cluster) as g:` starts and stops one that serves S3 on a free port."""

    # What is usual in days and hours is over after a second; usage is written down at once. The lifecycle's own thread sleeps: tests say when.
    OPTIONS = ["--rgw-gc-obj-min-wait", "1", "--rgw-lc-debug-interval", "1", "--rgw-enable-usage-log", "true", "--rgw-usage-log-tick-interval", "1",
               "--rgw-usage-log-flush-threshold", "1", "--rgw-enable-lc-threads", "false"]

    def __init__(self, cluster, options=()):
        self.cluster, self.options = cluster, [*self.OPTIONS, *options]

    def __enter__(self):
        folder = pathlib.Path(self.cluster.dir)
        self.keyring, self.port = str(folder / "radosgw.keyring"), free_port()
        self.cluster.ceph("auth", "get-or-create", "client.rgw.x", "mon", "allow rw", "osd", "allow rwx", "-o", self.keyring)
        self.log = folder / "log" / "radosgw.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["radosgw", "-f", *self.who(), "--rgw-frontends", f"beast endpoint=127.0.0.1:{self.port}", "--rgw-dns-name", "localhost", "--log-to-stderr", "true",
                 "--log-file", "", "--admin-socket", "", "--run-dir", str(folder)], stdout=log, stderr=log, env=self.env())
        try:
            self.cluster.wait(self.serves, 60, "radosgw serves")
        except BaseException:
            self.__exit__(None, None, None)
            print(self.log.read_text(errors="replace")[-3000:])
            raise
        return self

    def __exit__(self, kind, value, trace):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def who(self):
        return ["-n", "client.rgw.x", "-k", self.keyring, *self.options]

    def env(self):
        return dict(os.environ, CEPH_CONF=self.cluster.conf, CEPH_ARGS="")

    def serves(self):
        if self.process.poll() is not None:
            raise AssertionError(f"radosgw ended with {self.process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def admin(self, *args, code=0):
        """`radosgw-admin ARGS`: what it prints."""
        r = subprocess.run(["radosgw-admin", *self.who(), *args], capture_output=True, env=self.env(), timeout=120)
        if r.returncode != code:
            raise AssertionError(f"radosgw-admin {' '.join(args)}: exit {r.returncode}\n{r.stdout[-1000:]!r}\n{r.stderr[-2000:]!r}")
        return r.stdout.decode(errors="replace")

    def json(self, *args):
        """`radosgw-admin ARGS`, parsed."""
        return json.loads(self.admin(*args))

    def s3(self, key=KEY, secret=SECRET):
        """A client."""
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 0}, read_timeout=120, max_pool_connections=20)
        return boto3.client("s3", endpoint_url=f"http://localhost:{self.port}", aws_access_key_id=key, aws_secret_access_key=secret, region_name="default", config=config)

    def stats(self, bucket):
        """Objects and bytes of a bucket by category, and its shards."""
        stats = self.json("bucket", "stats", f"--bucket={bucket}")
        return {kind: (usage["num_objects"], usage["size"]) for kind, usage in stats["usage"].items()}, stats["num_shards"]


def pages(client, method, bucket, **args):
    """All pages of a listing."""
    return client.get_paginator(method).paginate(Bucket=bucket, **args)
