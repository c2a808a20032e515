"""The task server: agents write, share and complete tasks (spec/task-server.md)."""
