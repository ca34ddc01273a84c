"""DaisyChain: chains spare machines to train small PyTorch models together."""

__version__ = "0.1.0"
