import threading

import pynvml

failures = []


def ask():
    try:
        for _ in range(200):
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(1)
            assert pynvml.nvmlDeviceGetIndex(handle) == 1
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            assert memory.used == 0
            pynvml.nvmlShutdown()
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
