"""Beam search over any pair of step functions: the PyTorch modules, or two ONNX files."""

import numpy as np
import torch
from model import EOS, LONGEST_WORD, SOS, TOKENS


class TorchStepper:
    def __init__(self, encoder, decoder):
        self.encoder, self.decoder = encoder.eval(), decoder.eval()

    @torch.no_grad()
    def encode(self, trajectory, nearest_key, padding):
        return self.encoder(*map(torch.from_numpy, (trajectory, nearest_key, padding))).numpy()

    @torch.no_grad()
    def decode(self, memory, memory_padding, target, target_padding):
        arrays = (memory, memory_padding, target, target_padding)
        return self.decoder(*map(torch.from_numpy, arrays)).numpy()


class OnnxStepper:
    """Inputs are matched by name, so the files' order of inputs does not matter."""

    def __init__(self, encoder_path, decoder_path):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.encoder = onnxruntime.InferenceSession(encoder_path, options)
        self.decoder = onnxruntime.InferenceSession(decoder_path, options)

    def encode(self, trajectory, nearest_key, padding):
        feed = {"trajectory": trajectory, "nearest_key": nearest_key, "padding": padding}
        return self.encoder.run(None, feed)[0]

    def decode(self, memory, memory_padding, target, target_padding):
        feed = {
            "memory": memory,
            "memory_padding": memory_padding,
            "target": target,
            "target_padding": target_padding,
        }
        return self.decoder.run(None, feed)[0]


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def beam_search(stepper, trajectory, nearest_key, beams=4):
    """The likeliest word for one trace. The encoder runs once; the decoder once per letter, all beams together."""
    memory = stepper.encode(trajectory[None], nearest_key[None], np.zeros((1, len(nearest_key)), bool))
    alive, scores = np.full((1, 1), SOS), np.zeros(1)
    best_word, best_score = "", -np.inf

    for _ in range(LONGEST_WORD - 1):
        count = len(alive)
        logits = stepper.decode(
            np.repeat(memory, count, axis=0),
            np.zeros((count, memory.shape[1]), bool),
            alive,
            np.zeros(alive.shape, bool),
        )
        totals = scores[:, None] + log_softmax(logits[:, -1].astype(np.float64))
        order = np.argsort(-totals, axis=None, kind="stable")[:beams]
        rows, letters = np.unravel_index(order, totals.shape)
        chosen = totals[rows, letters]

        ended = letters == EOS
        for row, score in zip(rows[ended], chosen[ended], strict=True):
            if score > best_score:
                best_word, best_score = "".join(TOKENS[t] for t in alive[row, 1:]), score
        alive = np.concatenate([alive[rows[~ended]], letters[~ended, None]], axis=1)
        scores = chosen[~ended]
        # Scores only fall, so nothing alive can overtake a finished word that is already ahead.
        if not len(alive) or scores.max() <= best_score:
            break
    return best_word
