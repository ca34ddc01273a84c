"""Who the other nodes are and how bytes reach them: identity, transport, discovery."""
