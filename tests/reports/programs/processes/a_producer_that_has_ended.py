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
    queue = context.Queue()
    producer = context.Process(target=leaves, args=(queue,))
    producer.start()
    producer.join()
    try:
        queue.get(timeout=60)
    except torch.AcceleratorError as error:
        assert type(error) is torch.AcceleratorError and error.error_code == 201
        assert str(error).startswith("CUDA error: invalid device context\n"), error
        assert "the process has ended" in str(error)
    else:
        raise AssertionError("received")
