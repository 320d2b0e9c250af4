"""onnxruntime inside MLServer, as short as its documentation has such runtimes. Imported by MLServer only."""

from __future__ import annotations

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxRuntime(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        wanted = {one.name: one.type for one in self.session.get_inputs()}
        feeds = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        feeds = {name: array.astype(bool) if "bool" in wanted[name] else array for name, array in feeds.items()}
        names = [one.name for one in self.session.get_outputs()]
        answers = self.session.run(None, feeds)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(names, answers, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
