"""What the stream sanitizer is made of: clocks of streams, regions and histories of memory, reports."""
