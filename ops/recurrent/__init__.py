"""RNN, GRU, LSTM."""
