import fcntl
import sys
from pathlib import Path

cache = Path(sys.argv[1])
with (cache / "lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    (cache / "building.so").write_text("half")
    print(1, flush=True)
    sys.stdin.read()
