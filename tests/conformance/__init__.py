"""PyTorch's own operator, module and optimizer databases, run on the device and compared with the CPU."""
