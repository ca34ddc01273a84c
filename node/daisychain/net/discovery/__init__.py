"""Where other nodes may be: mDNS, the tailnet, given addresses. Candidates, never trust."""
