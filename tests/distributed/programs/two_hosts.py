"""Two network namespaces joined by a cable stand for two hosts: each runs torchrun with two ranks.

Runs in namespaces of its own, of users and of networks: `unshare --user --map-root-user --net`.
"""

import os
import subprocess
import sys

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def ip(*arguments, inside=()):
    subprocess.run([*inside, "ip", *arguments], check=True, timeout=20)


def torchrun(host, inside=()):
    command = [*inside, sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    command += [f"--node-rank={host}", f"--master-addr={ADDRESSES[0]}", "--master-port=29500", *sys.argv[1:]]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


# The other host is there as long as its first process, which waits for its input to end.
other = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; cat"], stdin=-1, stdout=-1)
other.stdout.readline()
there = ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
ip("link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", str(other.pid))
for number, inside in enumerate(((), there)):
    ip("address", "add", f"{ADDRESSES[number]}/24", "dev", f"cable{number}", inside=inside)
    for device in ("lo", f"cable{number}"):
        ip("link", "set", device, "up", inside=inside)
launched = [torchrun(0), torchrun(1, there)]
try:
    statuses = [one.wait(timeout=100) for one in launched]
finally:
    for one in launched:
        one.kill()
    other.stdin.close()
assert statuses == [0, 0], statuses
