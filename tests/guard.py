"""Counts the instructions of what must stay cheap, and fails where they have grown or shrunk by a tenth.

Instructions, not seconds: valgrind counts the same ones however busy the machine is. Each count is the
difference between a run with many requests and one with few, so that starting up does not matter.

    tests/guard.py            compare with tests/guard.json
    tests/guard.py --write    write tests/guard.json anew, after a change that is meant

A case without a count in tests/guard.json is shown and does not fail. The counts belong to one compiler. With another one they are shown and nothing fails.
"""

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "tests" / "guard.json"
TOLERANCE = 0.10
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "guard", "version": "1"},
}
TEMPLATES = "".join(
    f'[[inline.template]]\nuri = "table{n:04}://{{id}}"\ntext = "row {{{{id}}}}"\n' for n in range(1000)
)


def request(number, method, params):
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}
    return json.dumps(body, separators=(",", ":")) + "\n"


def read(name):
    return lambda number: request(number, "resources/read", {"uri": f"file:///data/{name}"})


def lists(number):
    return request(number, "resources/list", {})


def complete(number):
    params = {
        "ref": {"type": "ref/resource", "uri": "file:///data/{+path}{?lines,bytes}"},
        "argument": {"name": "path", "value": "notes/n00"},
    }
    return request(number, "completion/complete", params)


def anything(uri):
    return lambda number: request(number, "resources/read", {"uri": uri})


def refs(number):
    params = {
        "ref": {"type": "ref/resource", "uri": "git://repository/commit/{id}{?format}"},
        "argument": {"name": "id", "value": "ma"},
    }
    return request(number, "completion/complete", params)


def template(number):
    return request(number, "resources/read", {"uri": f"table0500://{number}"})


# Name, configuration, request, and how many in the short run and how many more in the long one: enough for
# starting up, which is never quite the same, to make no difference. With a database, it differs most.
CASES = [
    ("kept read of 1 KiB", "kept", read("1k.txt"), 500, 3000),
    ("read of 1 KiB", "cold", read("1k.txt"), 100, 3000),
    ("read of 1 KiB, documents off", "undocumented", read("1k.txt"), 100, 3000),
    ("read of 1 MiB of text", "cold", read("1m.txt"), 8, 64),
    ("read of 1 MiB of bytes", "cold", read("1m.bin"), 8, 64),
    ("list of 100", "cold", lists, 10, 100),
    ("completion", "cold", complete, 20, 150),
    ("read by one of 1,000 templates", "templates", template, 400, 3000),
    ("kept list of 100", "kept", lists, 500, 3000),
    ("kept list, mixed catalog", "mixed", lists, 500, 20000),
    ("kept schema of a database", "mixed", anything("sqlite://shop/schema"), 500, 20000),
    ("kept row of a database", "mixed", anything("sqlite://shop/items/rows/7"), 500, 20000),
    ("kept blob of a repository", "mixed", anything("git://repository/tree/HEAD/1k.txt"), 500, 20000),
    ("kept completion of a path", "mixed", complete, 500, 20000),
    ("kept completion of a ref", "mixed", refs, 500, 20000),
    ("kept not found", "mixed", read("missing.txt"), 500, 20000),
]

# A layer must cost next to nothing where it has nothing to do: two cases of one run, and how many times as
# many instructions the first may take. Both are counted with the same compiler, so this is always compared.
LAYERS = [("read of 1 KiB", "read of 1 KiB, documents off", 1.03)]


def prepare(folder):
    data = folder / "data"
    (data / "notes").mkdir(parents=True)
    line = 'The handbook says "read me first", and so do its readers, in each of the chapters.\n'
    (data / "1k.txt").write_text((line * 20)[:1024])
    (data / "1m.txt").write_text((line * 20000)[: 1 << 20])
    (data / "1m.bin").write_bytes(random.Random(1).randbytes(1 << 20))
    for n in range(200):
        (data / "notes" / f"n{n:04}.txt").write_text(f"note {n}\n")
    # Old enough to be trusted by their times.
    for path in [data, *data.rglob("*")]:
        os.utime(path, (1_700_000_000, 1_700_000_000))
    prepare_database(folder / "shop.db")
    prepare_repository(folder / "repository")
    # The change times of the database and of the refs must be old enough too, and cannot be set.
    time.sleep(3)
    source = f'[[files]]\npath = "{data}"\n'
    git = f'[[git]]\npath = "{folder / "repository"}"\n'
    sql = f'[[sql]]\nurl = "sqlite:{folder / "shop.db"}"\n'
    (folder / "mixed.toml").write_text(f"{source}{git}{sql}")
    (folder / "kept.toml").write_text(source)
    (folder / "cold.toml").write_text(f"[server]\ncache_bytes = 0\n{source}")
    (folder / "undocumented.toml").write_text(f'documents = "off"\n[server]\ncache_bytes = 0\n{source}')
    (folder / "templates.toml").write_text(f"[server]\ncache_bytes = 0\n{TEMPLATES}")


def prepare_database(path):
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    rows = [(n, f"item {n}") for n in range(1000)]
    database.executemany("INSERT INTO items VALUES (?, ?)", rows)
    database.commit()
    database.close()


def prepare_repository(path):
    path.mkdir()
    (path / "1k.txt").write_text("It is the same in each of the chapters.\n" * 25)
    for arguments in [["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]]:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
        subprocess.run(["git", "-C", path, *identity, *arguments], check=True)


def instructions(program, folder, config, make, count):
    lines = "".join(make(number) for number in range(count))
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program]
    command += ["serve", "--stdio", "--config", str(folder / f"{config}.toml")]
    run = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    is_missing = lambda answer: answer.get("error", {}).get("message", "").startswith("resource not found")
    bad = [answer for answer in answers if "result" not in answer and not is_missing(answer)]
    if bad or len(answers) != count:
        sys.exit(f"guard: {len(answers)} answers to {count} requests: {bad[:1]} {run.stderr[-500:]}")
    collected = [line for line in run.stderr.splitlines() if "Collected :" in line]
    return int(collected[0].split()[-1])


def compiler():
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def main():
    program = os.environ["LIBRIS_BIN"]
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"instructions": {}}
    rustc = compiler()
    comparable = baseline.get("rustc") == rustc
    counts, failed = {}, []
    print(f"{'instructions per request':34}{'now':>12}{'before':>12}")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        prepare(folder)
        for name, config, make, few, many in CASES:
            short = instructions(program, folder, config, make, few)
            long = instructions(program, folder, config, make, few + many)
            now = counts[name] = (long - short) // many
            before = baseline["instructions"].get(name)
            off = before is not None and abs(now - before) > TOLERANCE * before
            if comparable and off:
                failed.append(name)
            print(f"{name:34}{now:>12,}{before or 0:>12,}{'  <-' if comparable and off else ''}")
    for with_layer, without, most in LAYERS:
        ratio = counts[with_layer] / counts[without]
        print(f"{with_layer} / {without}: {ratio:.3f}, at most {most}")
        if ratio > most:
            sys.exit(f"guard: {with_layer} costs {ratio:.3f} times as much as {without}")
    if "--write" in sys.argv:
        BASELINE.write_text(json.dumps({"rustc": rustc, "instructions": counts}, indent=2) + "\n")
    elif not comparable:
        print(f"guard: counted with rustc {rustc}, the baseline is of {baseline.get('rustc')}: not compared")
    elif failed:
        sys.exit(f"guard: {len(failed)} off by more than a tenth; if that is meant, run tests/guard.py --write")
    else:
        print(f"guard: {len(counts)} counts within a tenth")


main()
