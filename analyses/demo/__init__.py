"""A lab that never was, to try MemoryMark on: its figures are real predictions, its people not."""
