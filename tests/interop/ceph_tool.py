"""The `ceph` tool, loaded once: each command runs in a fork of a process that has done nothing else yet. Of the CPU time of a
`ceph` command half is what Python takes to start and to load its modules, and of a test's half was `ceph`.

As a script: the server of `Ceph`, which its process starts when it runs its first command."""
import atexit
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types


class Tool:
    """The tool as a module of this process. Other tools are run as they are."""

    def __init__(self):
        loader = importlib.machinery.SourceFileLoader("ceph_tool", shutil.which("ceph"))
        spec = importlib.util.spec_from_loader("ceph_tool", loader)
        self.module = importlib.util.module_from_spec(spec)
        loader.exec_module(self.module)
        # Each command copies the signatures of all commands there are to find its own, of which the copying takes most.
        sys.modules["ceph_argparse"].copy = types.SimpleNamespace(deepcopy=lambda value: pickle.loads(pickle.dumps(value, -1)))
        self.remember_signatures()

    def remember_signatures(self):
        """What monitors and managers say of their commands is read by each command anew: forks find here what one has read of
        the same text."""
        parse, folder = self.module.parse_json_funcsigs, tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)

        def parsed(text, consumer):
            path = os.path.join(folder, hashlib.sha1(f"{consumer} {text}".encode()).hexdigest())
            try:
                with open(path, "rb") as f:
                    return pickle.load(f)
            except FileNotFoundError:
                signatures = parse(text, consumer)
                with open(f"{path}.{os.getpid()}", "wb") as f:
                    pickle.dump(signatures, f, -1)
                os.rename(f.name, path)
                return signatures

        self.module.parse_json_funcsigs = parsed

    def run(self, env, args, stdin, out, err):
        """Runs `ceph ARGS` in a fork with `env` added to its environment and these files (descriptors); its process id."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            for n, fd in enumerate((stdin, out, err)):
                os.dup2(fd, n)
            os.environ.update(env)
            sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb"), encoding="utf-8")
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb"), encoding="utf-8")
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb"), encoding="utf-8")
            sys.argv = ["ceph", *args]
            code = self.module.main() or 0
        except SystemExit as e:
            code = 0 if e.code is None else e.code
        except BaseException:
            traceback.print_exc()
        finally:
            if not isinstance(code, int):
                print(code, file=sys.stderr)
                code = 1
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            os._exit(code & 255)


class Ceph:
    """Runs `ceph` commands as `subprocess.run` would, in any number of threads."""

    def __init__(self):
        self.turn = threading.Lock()
        self.server = None

    def connection(self, fds, request):
        """A connection of its own for one command, whose files the server gets."""
        with self.turn:
            if self.server is None:
                self.server, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                process = subprocess.Popen([sys.executable, __file__, str(there.fileno())], pass_fds=[there.fileno()],
                                           start_new_session=True)
                there.close()
                atexit.register(self.end, process)
            here, there = socket.socketpair()
            socket.send_fds(self.server, [json.dumps(request).encode()], [*fds, there.fileno()])
            there.close()
            return here

    def end(self, process):
        """It ends when this end of the socket is closed. Forks of this process may have it open, too."""
        self.server.close()
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(self, args, input, timeout, env):
        """`ceph ARGS`: what came of it."""
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            stdin.write(input or b"")
            stdin.seek(0)
            request = {"args": list(args), "env": env, "cwd": os.getcwd()}
            with self.connection([f.fileno() for f in (stdin, out, err)], request) as con:
                pid = con.recv(4)
                if len(pid) != 4:
                    raise RuntimeError(f"ceph {' '.join(args)}: who runs it is gone")
                con.settimeout(timeout)
                try:
                    code = con.recv(4)
                except BaseException as e:
                    os.kill(int.from_bytes(pid, "little"), signal.SIGKILL)
                    if isinstance(e, TimeoutError):
                        raise subprocess.TimeoutExpired(["ceph", *args], timeout) from None
                    raise
            if len(code) != 4:
                raise RuntimeError(f"ceph {' '.join(args)}: who runs it is gone")
            texts = []
            for f in (out, err):
                f.seek(0)
                texts.append(f.read())
            return subprocess.CompletedProcess(["ceph", *args], int.from_bytes(code, "little", signed=True), *texts)


def answer(tool, message, fds):
    """Runs one command, and tells its process id and its exit code."""
    *files, con = fds
    request = json.loads(message)
    os.chdir(request["cwd"])
    for name in set(os.environ) - set(request["env"]):
        del os.environ[name]
    con = socket.socket(fileno=con)
    pid = tool.run(request["env"], request["args"], *files)
    con.sendall(pid.to_bytes(4, "little"))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    con.sendall(code.to_bytes(4, "little", signed=True))


def serve(control):
    """Answers until the other end is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    tool = Tool()
    while True:
        message, fds, *_ = socket.recv_fds(control, 1 << 20, 8)
        if not message:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            try:
                answer(tool, message, fds)
            finally:
                os._exit(0)
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
