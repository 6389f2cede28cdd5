"""What the stream sanitizer is made of: clocks of streams, regions of memory, histories of blocks, reports."""
