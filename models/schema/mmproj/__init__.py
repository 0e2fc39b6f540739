"""Rows of llama.cpp's files of encoders and projectors (mmproj) that several families share."""
