"""Parts of a server beside the calls of the kernel: a folder or a module each."""
