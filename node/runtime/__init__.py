"""The broker as a process, with all input and output of `node`: processes, ZeroMQ sockets, LMDB and
files."""
