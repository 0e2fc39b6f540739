"""Operations on tensors by PyTorch's names: type promotion, and expressions of the operators."""
