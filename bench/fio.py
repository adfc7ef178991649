"""fio as the comparisons use it: run once, its figures of the (only) group of jobs as fio's JSON has them. A client's fio writes through its
rbd engine: unmodified librbd, the image `image` of the pool `bench`."""
import json
import os
import shutil
import subprocess


def need():
    """Ends the program with one line where fio is not installed. To be asked first: what has been set up before the first run is lost."""
    if not shutil.which("fio"):
        raise SystemExit("fio is not installed: apt-get install fio (scripts/test installs all that tests and comparisons need)")


def run(*args, **environment):
    """{"read": figures, "write": figures, "sync": figures, ...}."""
    need()
    r = subprocess.run(["fio", "--output-format=json", *args], capture_output=True, text=True, env=dict(os.environ, **environment))
    if r.returncode != 0:
        raise SystemExit(f"fio {' '.join(args)} failed ({r.returncode}): {(r.stderr or r.stdout).strip()}")
    # What it has to remark comes before.
    return json.loads(r.stdout[r.stdout.index("{"):])["jobs"][0]


def on_image(rw, block, depth, size, *more, rbd_cache=False):
    """The same of an image's first `size` (as fio says sizes), `block` bytes at once, `depth` in flight."""
    return run("--name=w", "--ioengine=rbd", "--pool=bench", "--rbdname=image", "--clientname=admin", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}",
               f"--size={size}", "--norandommap", *more, CEPH_ARGS=f"--rbd_cache={'true' if rbd_cache else 'false'}")
