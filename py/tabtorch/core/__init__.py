"""The tensor: its class, its views and indices, how one is made from data of the host, and how it gets back there."""
