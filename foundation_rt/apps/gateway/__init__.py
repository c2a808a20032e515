"""The gateway: the servers of a file behind one endpoint, an application on the runtime."""
