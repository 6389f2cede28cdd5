import os
import threading

from tests.cuda.programs.workspaces.setup import kept, x


def run(*functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        # Python calls a thread ended before the system does, which then frees what was the thread's own.
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):
            os.sched_yield()


y = x @ x
assert kept() == 32
y.sum().backward()  # the backward pass of a device has a thread of its own there
assert kept() == 64
run(lambda: x @ x)
assert kept() == 96
run(lambda: x @ x)
assert kept() == 96  # the thread before has ended
both = threading.Barrier(2)


def together():
    both.wait()
    x @ x
    both.wait()


run(together, together)
assert kept() == 128
run(lambda: (x @ x).sum().backward())
assert kept() == 128
