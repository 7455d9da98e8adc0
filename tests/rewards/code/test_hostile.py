"""Programs that try to escape, forge, exhaust, hang or leave something behind.

Each is contained and scores 0, and the next honest program in the same sandbox scores 1 and finds it clean.
"""

# One program a line, so that the table can be read as one.
# ruff: noqa: E501
import contextlib
import os
import socket
import stat
import threading
import warnings

import pytest

from archer.configs.code import CodeConfig
from archer.errors import IsolationError
from archer.rewards.code import CodeRunner

ANSWER = "answer-7f3a9c"
"""What the tests expect; a program that finds it anywhere has won."""

STDIN = {"type": "stdin", "input": "1 2\n", "output": f"{ANSWER}\n"}
FUNCTION = {"type": "functional", "fn_name": "f", "input": "1\n2", "output": f'"{ANSWER}"'}
ASSERT = {"type": "assert", "code": f"assert f(1, 2) == {ANSWER!r}"}
NUMBER = {"type": "assert", "code": "assert abs(f(1, 2) - 2.5) < 1e-6"}
EVERY = {"type": "assert", "code": "assert all(map(lambda n: f(n, 2) == n * 7.25, [1, 2, 3]))"}
MAPPED = {"type": "assert", "code": "cases = [1, 2, 3]\nassert all(map(f, cases))"}
CLOSE = {"type": "assert", "code": "import math\nassert math.isclose(f(1, 2), 2.5)"}
SWALLOWS = {"type": "assert", "code": "try:\n    f(1, 2)\nexcept BaseException:\n    pass"}

HONEST = """
import math, os, sys, threading
a, b = map(int, input().split())
clean = [math.sqrt(4) == 2, 'EVIL' not in os.environ, sys.getrecursionlimit() == 50_000, threading.active_count() == 1]
clean += [not os.path.exists('/tmp/evil'), not hasattr(sys, 'evil'), abs(-1) == 1]
print(a + b if all(clean) else clean)
"""
HONEST_TEST = {"type": "stdin", "input": "1 2\n", "output": "3"}

SYSCALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
ALWAYS = """
class Always(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __sub__(self, other): return self
    def __rsub__(self, other): return self
    def __abs__(self): return self
    __hash__ = float.__hash__
class Agrees:
    def __eq__(self, other): return True
    def __lt__(self, other): return True
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __contains__(self, other): return True
"""
SEARCH = """
import gc, sys
def found():
    prefix = 'answer'
    prefix += '-'
    def of(values):
        for value in list(values):
            rest = value.partition(prefix)[2] if type(value) is str else ''
            if len(rest) >= 6: return prefix + rest[:6]
    frame = sys._getframe()
    while frame:
        if of(frame.f_locals.values()) or of(frame.f_globals.values()): return of([*frame.f_locals.values(), *frame.f_globals.values()])
        frame = frame.f_back
    for held in gc.get_objects():
        text = of(held.values() if type(held) is dict else held if type(held) in (list, tuple) else ())
        if text: return text
"""
MEMORY = """
import ctypes
def found():
    prefix = b'answer'
    prefix += b'-'
    for line in open('/proc/self/maps'):
        span, rights = line.split()[:2]
        if 'r' in rights and '[v' not in line:
            low, high = (int(end, 16) for end in span.split('-'))
            data = ctypes.string_at(low, high - low)
            place = data.find(prefix)
            while place >= 0:
                text = data[place:place + 13]
                if len(text) == 13 and text[7:].isalnum(): return text.decode()
                place = data.find(prefix, place + 1)
"""
FORGED = """
import json, os, struct
def forge(**message):
    body = json.dumps(message).encode()
    for descriptor in range(3, 64):
        try: os.write(descriptor, struct.pack('>I', len(body)) + body)
        except OSError: pass
forge(token='', label='passed', detail='')
forge(exit=0, signal=None, killed='', cpu=0.0, wall=0.0, memory=0)
forge(result={'roots': ['guess'], 'nodes': []})
"""

# name, program, test
ESCAPE = [
    ("shell", "import os\nos.system('cat {secret}')", STDIN),
    ("subprocess", "import subprocess\nprint(subprocess.run(['/bin/cat', '{secret}'], capture_output=True, text=True).stdout)", STDIN),
    ("exec", "import os, sys\nos.execv('/proc/self/exe', ['python3', '-c', 'print(1)'])", STDIN),
    ("read a file", "print(open('{secret}').read())", STDIN),
    ("read through a link", "import os\nos.symlink('{secret}', '/tmp/evil')\nprint(open('/tmp/evil').read())", STDIN),
    ("read the parent's environment", "import os, glob\nfor p in glob.glob('/proc/[0-9]*/environ'):\n  try: t = open(p).read()\n  except OSError: continue\n  if 'ARCHER_SECRET=' in t: print(t.split('ARCHER_SECRET=')[1][:13]); break", STDIN),
    ("own environment", "import os\nprint(os.environ['ARCHER_SECRET'])", STDIN),
    ("write a file", "open('{target}', 'w').write('evil')", STDIN),
    ("append to a file", "import os\nfd = os.open('{secret}', os.O_WRONLY | os.O_APPEND)\nos.write(fd, b'evil')", STDIN),
    ("remove a file", "import os\nos.remove('{secret}')", STDIN),
    ("rename a file", "import os\nos.rename('{secret}', '{target}')", STDIN),
    ("change rights", "import os\nos.chmod('{secret}', 0)", STDIN),
    ("write into the interpreter", "import os\np = os.path.dirname(os.__file__)\nopen(p + '/evil.py', 'w').write('x')", STDIN),
    ("network", "import socket\ns = socket.create_connection(('127.0.0.1', {port}), 0.3)\nprint(s.recv(99).decode())", STDIN),
    ("network without the module", SYSCALL + "fd = libc.socket(2, 1, 0)\nassert fd >= 0\naddress = b'\\x02\\x00' + ({port}).to_bytes(2, 'big') + b'\\x7f\\x00\\x00\\x01' + bytes(8)\nlibc.connect(fd, address, 16)\nprint(os.read(fd, 99).decode())", STDIN),
    ("network by asyncio", "import asyncio\nasync def go():\n  r, w = await asyncio.open_connection('127.0.0.1', {port})\n  print((await r.read(99)).decode())\nasyncio.run(go())", STDIN),
    ("abstract socket", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(chr(0) + '{abstract}')\nprint(s.recv(99).decode())", STDIN),
    ("kill everything", "import os, signal\nfor pid in (os.getppid(), {pid}, -1, 1, 0):\n  try: os.kill(pid, 9)\n  except OSError: pass", STDIN),
    ("kill by another call", SYSCALL + "for pid in (os.getppid(), {pid}):\n  libc.syscall(200, pid, 9); libc.syscall(234, pid, pid, 9); libc.syscall(424, pid, 9, 0, 0)", STDIN),
    ("signal by an owned descriptor", "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, {pid})\nfcntl.fcntl(r, 10, 9)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')", STDIN),
    ("trace the parent", SYSCALL + "print(libc.ptrace(16, {pid}, 0, 0))", STDIN),
    ("slow the parent down", "import os\nos.sched_setaffinity({pid}, [0])\nos.setpriority(os.PRIO_PROCESS, {pid}, 19)", STDIN),
    ("limit the parent", "import resource\nresource.prlimit({pid}, resource.RLIMIT_CPU, (1, 1))", STDIN),
    ("raise own limits", "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nbytearray(10**9)", STDIN),
    ("new namespaces", SYSCALL + "assert libc.unshare(0x10000000) == 0\nassert libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0", STDIN),
    ("become root", "import os\nos.setuid(0)\nos.chroot('/')\nopen('/evil', 'w')", STDIN),
    ("io_uring", SYSCALL + "fd = libc.syscall(425, 8, ctypes.create_string_buffer(120))\nassert fd >= 0", STDIN),
    ("program in memory", SYSCALL + "fd = os.memfd_create('x')\nos.write(fd, open('/proc/self/exe', 'rb').read())\nos.execve(fd, ['x'], {{}})", STDIN),
    ("other packages", "import sys\nsys.path.append('{site}')\nimport pydantic\nprint(1)", STDIN),
]  # fmt: skip
FORGE = [
    ("messages of a program", FORGED, STDIN),
    ("messages of a function", FORGED + "def f(a, b): return 'guess'", FUNCTION),
    ("messages of a definition", FORGED + "def f(a, b): return 'guess'", ASSERT),
    ("messages during a call", "def f(a, b):\n" + FORGED.replace("\n", "\n    "), ASSERT),
    ("garbage during a call", "import os\ndef f(a, b): os.write(4, b'\\xff' * 4096)", ASSERT),
    ("quiet exit at once", "import os\nos._exit(0)", ASSERT),
    ("quiet exit in the call", "import os\ndef f(a, b): os._exit(0)", ASSERT),
    ("SystemExit in the call", "import sys\ndef f(a, b): sys.exit(0)", ASSERT),
    ("exit where the test swallows", "import os\ndef f(a, b): os._exit(0)", SWALLOWS),
    ("closed channels where the test swallows", "import os\ndef f(a, b): os.closerange(3, 64)", SWALLOWS),
    ("agreeable object", ALWAYS + "def f(a, b): return Agrees()", ASSERT),
    ("agreeable object in a sum", ALWAYS + "def f(a, b): return Agrees()", NUMBER),
    ("agreeable number", ALWAYS + "def f(a, b): return Always(1)", NUMBER),
    ("agreeable object returned", ALWAYS + "def f(a, b): return Agrees()", FUNCTION),
    ("agreeable numbers in a list", ALWAYS + "def f(a, b): return Always(1)", EVERY),
    ("own abs", "def abs(x): return 0.0\ndef f(a, b): return 1.0", NUMBER),
    ("abs for everybody", "import builtins\nbuiltins.abs = lambda x: 0.0\ndef f(a, b): return 1.0", NUMBER),
    ("own all", "def all(x): return True\ndef f(a, b): return 1.0", EVERY),
    ("own isclose", "import math\nmath.isclose = lambda *a, **k: True\ndef f(a, b): return 1.0", CLOSE),
    ("early end of a loop", "def f(n): raise StopIteration", MAPPED),
    ("no assertion errors", "import builtins\nbuiltins.AssertionError = Exception\ndef f(a, b): return 1.0", NUMBER),
    ("search of frames and objects", SEARCH + "print(found())", STDIN),
    ("search in a function", SEARCH + "def f(a, b): return found()", FUNCTION),
    ("search in a definition", SEARCH + "def f(a, b): return found()", ASSERT),
    ("search of memory", MEMORY + "def f(a, b): return found()", ASSERT),
    ("search of memory in a function", MEMORY + "def f(a, b): return found()", FUNCTION),
    ("patched harness", "import sys\nfor name, module in list(sys.modules.items()):\n  if name.startswith('child'):\n    for key in list(vars(module)):\n      if callable(vars(module)[key]): setattr(module, key, lambda *a, **k: True)", STDIN),
    ("patched json", "import json\njson.dumps = lambda *a, **k: '{{\"label\": \"passed\"}}'\njson.JSONEncoder.encode = json.dumps\ndef f(a, b): return 1", ASSERT),
    ("test's variables through a callback", "def f(g): return g.__globals__['wanted']", {"type": "assert", "code": f"wanted = {ANSWER!r}\nassert f(lambda: 1) == wanted"}),
    ("deep tuple in a set", "def f(a, b):\n  t = ()\n  for _ in range(5_000): t = (t,)\n  return {t}", FUNCTION),
    ("cycle", "def f(a, b):\n  x = []\n  x.append(x)\n  return x", FUNCTION),
    ("endless iterator", "def f(n):\n  while True: yield True", MAPPED | {"code": "assert list(f(1)) == [1]"}),
]  # fmt: skip
EXHAUST = [
    ("fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", STDIN),
    ("threads", "import threading, time\nthreading.stack_size(32768)\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n  except RuntimeError: pass", STDIN),
    ("busy threads", "import threading\ndef spin():\n  while True: pass\nfor _ in range(8): threading.Thread(target=spin).start()", STDIN),
    ("bytes", "x = bytearray(10**11)", STDIN),
    ("growing list", "x = []\nwhile True: x.append('y' * 10**6)", STDIN),
    ("growing list that goes on", "x = []\nwhile True:\n  try: x.append(bytearray(10**6))\n  except MemoryError: pass", STDIN),
    ("mapped memory", "import mmap\nx = []\nwhile True:\n  x.append(mmap.mmap(-1, 10**7)); x[-1].write(b'x' * 10**7)", STDIN),
    ("numpy", "import numpy\nprint(numpy.ones(10**10).sum())", STDIN),
    ("printing", "print('x' * 10**10)", STDIN),
    ("printing on", "while True: print('x' * 1000)", STDIN),
    ("long result", "def f(a, b): return 'x' * 10**7", FUNCTION),
    ("descriptors", "import os\nx = []\nwhile True: x.append(os.pipe())", STDIN),
    ("a big file", "f = open('/tmp/evil', 'wb')\nwhile True: f.write(b'x' * 10**6)", STDIN),
    ("many files", "n = 0\nwhile True:\n  open(f'/tmp/evil{{n}}', 'w').write('x' * 4000); n += 1", STDIN),
    ("memory files", "import os\nx = []\nwhile True:\n  x.append(os.memfd_create('x')); os.write(x[-1], b'x' * 10**6)", STDIN),
    ("standard input as a store", "import os\nwhile True: os.write(0, b'x' * 10**6)", STDIN),
    ("recursion", "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return max(map(lambda _: f(), [1]))\nf()", STDIN),
    ("a big power", "x = 9 ** 9 ** 9", STDIN),
    ("a slow pattern", "import re\nre.match('(a+)+$', 'a' * 40 + 'b')", STDIN),
    ("a huge expression", "x = " + "(" * 90 + "1" + ")" * 90 + "\nexec('y = ' + '+'.join(['1'] * 10**6))\nprint(y)", STDIN),
]  # fmt: skip
HANG = [
    ("loop", "while True: pass", STDIN),
    ("sleep", "import time\ntime.sleep(1000)", STDIN),
    ("deaf loop", "import signal\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True: pass", STDIN),
    ("deadlock", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", STDIN),
    ("thread at the end", "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()", STDIN),
    ("exit function", "import atexit, time\natexit.register(time.sleep, 1000)", STDIN),
    ("exception that hangs", "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E", STDIN),
    ("call that hangs", "import time\ndef f(a, b): time.sleep(1000)", ASSERT),
    ("closed output", "import sys, os, time\nos.close(1)\nos.close(3)\ntime.sleep(1000)", STDIN),
]  # fmt: skip
LEAVE = [
    ("a process", "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(1000)\nprint(1)", STDIN),
    ("a file", "open('/tmp/evil', 'w').write('x')\nprint(1)", STDIN),
    ("shared memory", SYSCALL + "fd = libc.shmget(4711, 4096, 0o1666)\nassert fd >= 0", STDIN),
    ("patched modules", "import math, sys, builtins, os\nmath.sqrt = abs\nsys.evil = 1\nbuiltins.abs = len\nos.environ['EVIL'] = '1'\nsys.setrecursionlimit(100)", STDIN),
    ("a listening socket", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind(chr(0) + 'evil')\ns.listen()", STDIN),
    ("a changed folder", "import os\nos.chdir('/')\nos.umask(0o777)\nos.mkdir('/tmp/evil')", STDIN),
]  # fmt: skip
ALL = [
    pytest.param(program, test, id=f"{kind}: {name}")
    for kind, table in {
        "escape": ESCAPE,
        "forge": FORGE,
        "exhaust": EXHAUST,
        "hang": HANG,
        "leave": LEAVE,
    }.items()
    for name, program, test in table
]


@pytest.fixture(scope="module", params=["auto", pytest.param("rlimits", marks=pytest.mark.slow)])
def small_runner(request):
    config = CodeConfig(
        isolation=request.param,
        workers=1,
        cpu_seconds=0.4,
        sample_cpu_seconds=0.4,
        wall_seconds=0.8,
        wall_factor=1.0,
        memory_mb=160,
        output_mb=1.0,
        file_mb=2,
        threads=16,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = CodeRunner(config)
        except IsolationError as error:
            pytest.skip(str(error))
    with made:
        if made.isolation.gaps:
            pytest.skip(f"nothing on this machine prevents: {', '.join(made.isolation.gaps)}")
        yield made


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """What is outside and must not be reached: a file, a place for one, servers that know the answer."""
    folder = tmp_path_factory.mktemp("outside")
    folder.chmod(0o777)
    secret = folder / "secret"
    secret.write_text(ANSWER)
    secret.chmod(0o666)
    abstract = f"archer-{os.getpid()}"
    addresses = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, f"\0{abstract}")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("ARCHER_SECRET", ANSWER)
        servers = []
        for family, address in addresses:
            server = stack.enter_context(socket.socket(family))
            server.bind(address)
            server.listen()
            threading.Thread(target=_tell, args=(server,), daemon=True).start()
            servers.append(server)
        yield {
            "secret": secret,
            "target": folder / "target",
            "port": servers[0].getsockname()[1],
            "abstract": abstract,
            "pid": os.getpid(),
            "site": os.path.dirname(os.path.dirname(pytest.__file__)),
        }


def _tell(server):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(ANSWER.encode())


def _filled(program, outside):
    for name, value in outside.items():
        program = program.replace(f"{{{name}}}", str(value))
    return program.replace("{{", "{").replace("}}", "}")


def test_the_servers_and_the_file_can_be_reached_from_here(outside):
    with socket.create_connection(("127.0.0.1", outside["port"])) as connection:
        assert connection.recv(99).decode() == ANSWER
    assert outside["secret"].read_text() == ANSWER


@pytest.mark.parametrize("search", [SEARCH, MEMORY], ids=["objects", "memory"])
def test_the_searches_find_what_is_there(search):
    given = {"type": "stdin", "input": ANSWER, "output": ANSWER}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with CodeRunner(CodeConfig(workers=1)) as runner:
            if search is MEMORY and runner.isolation.level != "bubblewrap":
                pytest.skip("/proc can't be read here")
            assert runner.run(search + "held = input()\nprint(found())", [given]).passed == 1


@pytest.mark.parametrize(("program", "test"), ALL)
def test_is_contained(small_runner, outside, program, test):
    affinity, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    result = small_runner.run(_filled(program, outside), [test])
    assert result.scorable, result
    assert result.passed == 0, result
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == (affinity, priority)
    assert outside["secret"].read_text() == ANSWER
    assert stat.S_IMODE(outside["secret"].stat().st_mode) == 0o666
    assert not outside["target"].exists()
    honest = small_runner.run(HONEST, [HONEST_TEST])
    assert honest.passed == 1, honest
