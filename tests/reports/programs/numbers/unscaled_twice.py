from tests.raising import raises
from tests.reports.programs.numbers.scaler import backward, made

model, optimizer, scaler = made()
backward(model, scaler)
scaler.unscale_(optimizer)
text = "unscale_() has already been called on this optimizer since the last update()."
raises("RuntimeError", text, lambda: scaler.unscale_(optimizer))
scaler.step(optimizer)
scaler.update()
scaler.unscale_(optimizer)
