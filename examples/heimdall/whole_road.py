"""The whole road in one command: train a little, export, verify, publish, serve, predict, reload a second version.

`python whole_road.py FOLDER` starts a store (SeaweedFS) and a registry (MLflow) in FOLDER, unless the environment names
others by AWS_ENDPOINT_URL and MLFLOW_TRACKING_URI. Training is on transmitters that are made up, for seconds: what is
shown is the road, not the accuracy.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import torch
from heimdall_net import HeimdallNet
from make_weights import IQ_LENGTH, RECEIVERS
from recipe import RECORDINGS

from fairway.deploy.callbacks import ExportOnBest
from fairway.testing.servers import BUCKET, find_free_ports, is_answering, run_mlflow_server, run_s3_server

NAME = "heimdall"


def made_up(batch, receivers, generator):
    """Transmitters at random places, and what receivers hear of them: the nearer, the louder."""
    places = torch.rand(batch, receivers, 3, generator=generator) * 20 - 10
    transmitter = torch.rand(batch, 1, 2, generator=generator) * 20 - 10
    difference = transmitter - places[..., :2]
    distance = difference.norm(dim=-1, keepdim=True)
    loudness = 1 / (1 + distance)
    time_axis = torch.arange(IQ_LENGTH) / IQ_LENGTH
    turns = torch.randint(1, 200, (batch, receivers, 1), generator=generator) * time_axis
    tone = torch.stack([(2 * torch.pi * turns).cos(), (2 * torch.pi * turns).sin()], dim=2)
    noise = torch.randn(batch, receivers, 2, IQ_LENGTH, generator=generator)
    features = torch.cat([difference / (distance + 1e-6), loudness, distance / 20, places[..., :2] / 10], dim=-1)
    ids = torch.randint(RECEIVERS, (batch, receivers), generator=generator)
    mask = torch.rand(batch, receivers, generator=generator) > 0.2
    mask[:, 0] = True
    return (tone * loudness[..., None] + 0.1 * noise, features, places, ids, mask), transmitter[:, 0]


def loss_of(model, batch):
    inputs, transmitter = batch
    return torch.nn.functional.mse_loss(model(*inputs)["positions"], transmitter)


def train(model, optimizer, steps, best, generator, held_back):
    """Some steps, with a look at transmitters held back after each five."""
    for step in range(1, steps + 1):
        model.train()
        optimizer.zero_grad()
        loss_of(model, made_up(2, 3, generator)).backward()
        optimizer.step()
        if step % 5 == 0 or step == steps:
            model.eval()
            with torch.no_grad():
                best.update(model, loss_of(model, held_back).item())


def make_version(number, model, optimizer, args, generator, held_back):
    """Trains on, exports the best weights, and publishes the file; fails where it is not verified."""
    best = ExportOnBest(
        args.folder / f"{NAME}_{number}.onnx",
        RECORDINGS,
        bounds={"batch": (1, 8), "receivers": (1, 10)},
        example={"batch": 2, "receivers": 3},
        level=args.level,
        publish_to=[f"s3://{BUCKET}/{NAME}", f"mlflow:{NAME}"],
    )
    train(model, optimizer, args.steps, best, generator, held_back)
    result = best.finish(model)
    if not result.verified:
        raise SystemExit(str(result))
    places = ", ".join(f"{one.where} version {one.version}" for one in best.published)
    print(f"version {number}: loss {best.best:.3g}, {result.verdict}, published to {places}", flush=True)
    model.load_state_dict(best.weights)
    return model.eval()


@contextlib.contextmanager
def served(folder):
    """`fairway serve` with the model from the registry, as its own process; the address of its REST side."""
    http_port, grpc_port = find_free_ports(2)
    address = f"http://127.0.0.1:{http_port}"
    words = [str(pathlib.Path(sys.executable).with_name("fairway")), "serve", f"{NAME}=mlflow:{NAME}"]
    words += ["--http-port", str(http_port), "--grpc-port", str(grpc_port), "--workers", "1"]
    with (folder / "serve.log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        while not is_answering(f"{address}/v2/health/ready"):
            if server.poll() is not None:
                raise SystemExit((folder / "serve.log").read_text())
            time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"{}")


def predict(address, batch):
    """One request of the Open Inference Protocol: the version that answered, and what it said."""
    names = [line.partition(":")[0] for line in RECORDINGS]
    kinds = {torch.float32: "FP32", torch.int64: "INT64", torch.bool: "BOOL"}
    tensors = [
        {"name": name, "shape": list(one.shape), "datatype": kinds[one.dtype], "data": one.flatten().tolist()}
        for name, one in zip(names, batch[0], strict=True)
    ]
    answer = post(f"{address}/v2/models/{NAME}/infer", {"inputs": tensors})
    positions = next(one for one in answer["outputs"] if one["name"] == "positions_out")
    return answer["model_version"], torch.tensor(positions["data"]).reshape(positions["shape"])


def ask(address, model, batch):
    with torch.no_grad():
        right = model(*batch[0])["positions"]
    version, got = predict(address, batch)
    difference = (got - right).abs().max().item()
    print(f"predicted by version {version}: {len(got)} positions, at most {difference:.1e} from PyTorch", flush=True)
    if difference > 1e-3 * right.abs().max().item():
        raise SystemExit("this is another model's answer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--level", default="quick")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    held_back = made_up(8, 5, generator)
    model = HeimdallNet(RECEIVERS)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with contextlib.ExitStack() as stack:
        for variable, start in (("AWS_ENDPOINT_URL", run_s3_server), ("MLFLOW_TRACKING_URI", run_mlflow_server)):
            if variable not in os.environ:
                folder = args.folder.absolute() / start.__name__
                folder.mkdir()
                os.environ |= stack.enter_context(start(folder))
        first = make_version(1, model, optimizer, args, generator, held_back)
        address = stack.enter_context(served(args.folder))
        ask(address, first, held_back)
        second = make_version(2, model.train(), optimizer, args, generator, held_back)
        post(f"{address}/v2/repository/models/{NAME}/load", {})
        ask(address, second, held_back)


if __name__ == "__main__":
    main()
