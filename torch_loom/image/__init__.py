"""What a compiled model is once the compiler is done: a program, its tensors, its plan. They run alone."""
