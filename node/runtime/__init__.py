"""The only input and output of `node`: processes, ZeroMQ sockets, LMDB and files."""
