"""What compare.py and compare_rbd.py share: the same commands on a real Ceph 16.2 and on ours, in
lockstep, and what differs between their exit codes and outputs.

A script says what it runs and what may differ with a `Comparison`, and calls `main` with it."""
import dataclasses
import json
import multiprocessing
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import typing

from ceph_tool import Tool
from cluster import Cluster
from real_ceph import RealCeph

# Longest time for one command, and for patient ones, seconds; after so many of those in a row
# nothing more is tried.
COMMAND_TIME, PATIENCE = 30, 200
HANGS = 3

# When a command that only looks differs, it is asked again after so many seconds.
PAUSE = 1.5

# Longest time `settle` waits, seconds.
SETTLE_TIME = 90


def words(text):
    """Words of a plain output without what belongs to one cluster: ids, keys, and what stands
    behind a command's signature in help, for we describe commands in our own words."""
    # Both clusters lie in folders of their own there: with another TMPDIR than /tmp their names were compared.
    text = re.sub(rf" : {{2}}.*|{re.escape(tempfile.gettempdir())}/[\w-]+", " ", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[A-Za-z0-9+/]{38}==", " ", text)
    return set(re.findall(r"[A-Za-z_][A-Za-z_-]{2,}", text))


@dataclasses.dataclass
class Comparison:
    """What is run, and what may differ."""

    # Each line runs on both, in order, once as it stands and once more with -f json if it begins
    # with "J ". Lines that begin with "- " are only for their effect. `settle` waits for clean PGs.
    commands: str
    # Known differences: the command and the difference (patterns, matched whole), and why it is
    # there. An entry that a run did not need is said at its end.
    different: list
    # Commands that look and change nothing (a pattern, matched whole): asked again when they differ.
    looks: re.Pattern
    # How often.
    attempts: int = 12
    # Commands that may take PATIENCE, or may not end.
    patient: re.Pattern = re.compile("settle")
    # Words and paths of JSON that are never compared.
    words_not_compared: frozenset = frozenset()
    paths_not_compared: re.Pattern = re.compile("(?!)")
    # Keys of JSON that are data: compared by the shape of their first value.
    keys_are_data: re.Pattern = re.compile("(?!)")
    # What is compared of plain outputs.
    words: typing.Callable = words
    # Whether words of JSON outputs are compared too, not only their keys.
    values: bool = False
    # What stands for `{NAME}` or `{NAME:ARGUMENT}` in a command on one cluster: NAME to a function
    # of (a function that runs a command and gives its JSON, the argument).
    variables: dict = dataclasses.field(default_factory=dict)

    def shape(self, value, path=""):
        """The set of key paths of a JSON value; list elements and data keys fold into one."""
        out = set()
        if isinstance(value, dict):
            for k, v in value.items():
                key = "*" if self.keys_are_data.match(k) else k
                out.add(f"{path}.{key}")
                out |= self.shape(v, f"{path}.{key}")
        elif isinstance(value, list):
            for v in value:
                out |= self.shape(v, f"{path}[]")
        return out

    def shapes(self, values):
        """The shapes of documents one behind the other."""
        return set().union({f"document {n}" for n in range(len(values))}, *(self.shape(v) for v in values))

    def differences(self, ours, real, as_json):
        """Differences between two results, each a line that `different` can name."""
        out = []
        if ours[0] != real[0]:
            return [f"exit code {ours[0]}, real {real[0]}: {ours[2].strip()[:200]!r}, real {real[2].strip()[:200]!r}"]
        texts = [x[1] + x[2] for x in (ours, real)]
        if as_json and real[1].strip()[:1] in ("[", "{"):
            try:
                mine, theirs = (self.shapes(documents(x[1].strip())) for x in (ours, real))
            except ValueError:
                return [f"not JSON: {ours[1][:100]!r}, real {real[1][:100]!r}"]
            out += [f"missing {p}" for p in sorted(theirs - mine) if not self.paths_not_compared.search(p)]
            out += [f"extra {p}" for p in sorted(mine - theirs) if not self.paths_not_compared.search(p)]
            if not self.values:
                texts = [x[2] for x in (ours, real)]
        hosts = {socket.gethostname(), socket.gethostname().split(".")[0]}
        mine, theirs = (self.words(text) - self.words_not_compared - hosts for text in texts)
        out += [f"word missing {w}" for w in sorted(theirs - mine)]
        out += [f"word extra {w}" for w in sorted(mine - theirs)]
        return out

    def known(self, line, difference):
        """The entry of `different` that allows this difference of this command."""
        for entry in self.different:
            command, what, _ = entry
            if re.fullmatch(command, line) and re.fullmatch(what, difference):
                return entry
        return None

    def cases(self):
        """(command, as JSON, whether to compare) for each run."""
        cases = []
        for line in filter(None, self.commands.splitlines()):
            if line.startswith("- "):
                cases.append((line[2:], False, False))
            elif line.startswith("J "):
                cases += [(line[2:], False, True), (line[2:], True, True)]
            else:
                cases.append((line, False, True))
        return cases


def documents(text):
    """The JSON documents of an output: some commands print two, one behind the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def without_log(text):
    """Standard error without what librados logs there by itself: now and then, with either cluster, a connection is made while the
    client ends, and it says that there is no auth handler or authorizer."""
    return re.sub(r"(?m)^\d{4}-\d\d-\d\dT\S+ \S+ -1 (monclient|--2- .* get_initial_auth_request returned -13).*\n?", "", text)


def run(tool, conf, line, as_json, limit=COMMAND_TIME):
    """(exit code, standard output, standard error) of one command; 124: it did not end. Commands
    run in a folder of their cluster's."""
    args = shlex.split(line) + (["--format=json"] if as_json else [])
    if args[0] != "ceph":
        env = dict(os.environ, CEPH_CONF=conf, CEPH_ARGS="")
        folder = os.path.join(os.path.dirname(conf), "files")
        os.makedirs(folder, exist_ok=True)
        try:
            r = subprocess.run(args, capture_output=True, timeout=limit, env=env, cwd=folder, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return 124, "", "did not end"
        return r.returncode, r.stdout.decode(errors="replace"), without_log(r.stderr.decode(errors="replace"))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        env = {"CEPH_CONF": conf, "CEPH_ARGS": ""}
        with open(os.devnull, "rb") as nothing:
            pid = tool.run(env, args[1:], nothing.fileno(), out.fileno(), err.fileno())
        end = time.monotonic() + limit
        pause = 0.002
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > end:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                code = 124
                break
            time.sleep(pause)
            pause = min(pause * 1.2, 0.02)
        texts = []
        for f in (out, err):
            f.seek(0)
            texts.append(f.read().decode(errors="replace"))
        return code, *texts


def settle(tool, conf):
    """Waits until all PGs are reported active+clean."""
    end = time.monotonic() + SETTLE_TIME
    while time.monotonic() < end:
        code, out, _ = run(tool, conf, "ceph status", True)
        pgs = json.loads(out)["pgmap"] if code == 0 else {}
        states = {s["state_name"]: s["count"] for s in pgs.get("pgs_by_state", [])}
        if states and states == {"active+clean": pgs["num_pgs"]}:
            return 0, "", ""
        time.sleep(0.3)
    return 124, "", "PGs are not clean"


def serve(conf, pipe, comparison):
    """Answers the commands that come through `pipe` on one cluster, in a process of its own."""
    tool = Tool()

    def parsed(line):
        return json.loads(run(tool, conf, line, True)[1])

    def value(match):
        name, argument = match.groups()
        variable = comparison.variables.get(name)
        return variable(parsed, argument) if variable else match[0]

    while (case := pipe.recv()) is not None:
        line, as_json = case
        if line == "settle":
            pipe.send(settle(tool, conf))
        else:
            limit = PATIENCE if comparison.patient.fullmatch(line) else COMMAND_TIME
            pipe.send(run(tool, conf, re.sub(r"\{(\w+)(?::([^}]*))?\}", value, line), as_json, limit))


def main(comparison):
    """Runs it, says what differs; the exit code: 1 when something differs that is not known.
    Arguments of the script: --verbose, and words that commands must contain to be compared."""
    verbose = "--verbose" in sys.argv
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    cases = [(line, as_json, show and all(w in line for w in wanted)) for line, as_json, show in comparison.cases()]
    used, bad, total, hangs = set(), [], 0, 0
    with RealCeph() as real, Cluster() as ours:
        pipes = []
        for cluster in (ours, real):
            here, there = multiprocessing.Pipe()
            arguments = (cluster.conf, there, comparison)
            multiprocessing.Process(target=serve, args=arguments, daemon=True).start()
            there.close()
            pipes.append(here)

        def both(line, as_json):
            for pipe in pipes:
                pipe.send((line, as_json))
            return [pipe.recv() for pipe in pipes]

        for line, as_json, show in cases:
            total += show
            began, attempts = time.monotonic(), 0
            while attempts < comparison.attempts:
                answers = both(line, as_json)
                found = comparison.differences(*answers, as_json) if show else []
                found = [(d, comparison.known(line, d)) for d in found]
                differences = [d for d, entry in found if entry is None]
                if not differences or not comparison.looks.fullmatch(line):
                    break
                # A real manager that is taken for dead on a busy machine comes back, and says then what it knows of PGs.
                away = "no active mgr" in answers[1][1] and time.monotonic() - began < SETTLE_TIME
                attempts += not away
                time.sleep(PAUSE)
            if verbose:
                print(f"{time.monotonic() - began:.1f} s {line}{' (json)' if as_json else ''}", *differences[:4], sep="\n    ", flush=True)
            used.update(entry for _, entry in found)
            if differences:
                bad.append((line, as_json, differences, answers))
            hung = any(code == 124 for code, *_ in answers) and not comparison.patient.fullmatch(line)
            hangs = hangs + 1 if hung else 0
            if hangs >= HANGS:
                print(f"{HANGS} commands in a row did not end; is a cluster gone?")
                return 1
        for pipe in pipes:
            pipe.send(None)
    for entry in comparison.different:
        if entry in used:
            print(f"known: {entry[0]}: {entry[1]}: {entry[2]}")
        elif not wanted:
            # Some depend on what state PGs were in at that moment: a notice, not a failure.
            print(f"not seen this time: {entry[0]}: {entry[1]}")
    # Last, so that it stands at the end of a long log.
    for line, as_json, differences, answers in bad:
        print(f"DIFFERS {line}{' (json)' if as_json else ''}")
        for d in differences[:12]:
            print("   ", d)
        if verbose:
            print("    ours:", answers[0], "\n    real:", answers[1])
    print(f"{total - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0
