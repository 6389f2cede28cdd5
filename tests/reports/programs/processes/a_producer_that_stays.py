import torch
import torch.multiprocessing as multiprocessing


def stays(queue, is_done):
    queue.put(torch.tensor([1, 2], device="cuda"))
    is_done.wait()


def leaves(queue):
    queue.put(torch.tensor([3, 4], device="cuda"))
    queue.close()
    queue.join_thread()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue, is_done = context.Queue(), context.Event()
    producer = context.Process(target=stays, args=(queue, is_done))
    producer.start()
    received = queue.get(timeout=60)
    assert received.is_cuda and received.tolist() == [1, 2]
    del received
    is_done.set()
    producer.join()
    assert producer.exitcode == 0
