"""What a compiled model is once the compiler is done: a program, its tensors and its plan, which run alone."""
