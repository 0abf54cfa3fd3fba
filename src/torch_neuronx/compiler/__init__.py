"""`torch.compile(backend="neuron")`: from the graph that Dynamo captures to a callable on the device.

Nothing here is imported by `import torch`; Dynamo finds `backend.neuron_backend` through the entry point group
`torch_dynamo_backends`.
"""
