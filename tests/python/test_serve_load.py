"""deepinfer serve under load: 500 answers at once beside idle, slow and leaving clients; nothing is lost, nothing stays."""
import asyncio
import json
import random
import re
import resource
import time

from serving import Server

N_HEALTHY, N_IDLE, N_SLOW, N_LEAVING = 500, 3000, 50, 200
CANARY = {"prompt": "And it came to pass", "max_tokens": 30, "temperature": 1, "seed": 3, "logprobs": 2}


def ask(i, **options):
    return {"prompt": f"{i} and " * (1 + i % 9), "max_tokens": 5 + i % 30, "temperature": 0, "ignore_eos": True, **options}


async def send(port, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    data = json.dumps(body).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" %
                 len(data) + data)
    return reader, writer


async def healthy(port, body):
    reader, writer = await send(port, body)
    reply = await reader.read()
    writer.close()
    assert reply.startswith(b"HTTP/1.1 200 OK\r\n"), reply[:200]
    assert (b"data: [DONE]" if body.get("stream") else b'"usage"') in reply
    return reply


async def slow(port, body):
    reader, writer = await send(port, body)
    await asyncio.sleep(5)
    assert b"data: [DONE]" in await reader.read()
    writer.close()


async def leaving(port, body, after):
    _, writer = await send(port, body)
    await asyncio.sleep(after)
    writer.transport.abort()


async def everybody(port, seed):
    rng = random.Random(seed)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(N_IDLE)]
    jobs = [healthy(port, ask(i, stream=i % 2 == 0)) for i in range(N_HEALTHY)]
    jobs += [slow(port, ask(i, stream=True, max_tokens=300)) for i in range(N_SLOW)]
    jobs += [leaving(port, ask(i, max_tokens=400), rng.random() * 4) for i in range(N_LEAVING)]
    canaries = [healthy(port, CANARY) for _ in range(10)]
    _, replies = await asyncio.gather(asyncio.gather(*jobs), asyncio.gather(*canaries))
    for _, writer in idle:
        writer.close()
    return [json.loads(reply[reply.index(b"\r\n\r\n"):])["choices"] for reply in replies]


def memory_mib(server):
    with open(f"/proc/{server.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) >> 10


def test_many_clients():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Server("--disable-log-requests") as server:
        alone = server.post("/v1/completions", CANARY)["choices"]
        used = []
        for seed in range(2):
            assert all(choices == alone for choices in asyncio.run(everybody(server.port, seed)))
            server.wait_for_metric("vllm:num_requests_running", 0)
            server.wait_for_metric("vllm:num_requests_waiting", 0)
            assert server.metric("vllm:kv_cache_usage_perc") == 0
            used.append(memory_mib(server))
        assert used[1] < used[0] + 20, used
        start = time.monotonic()
        assert server.stop() == 0 and time.monotonic() - start < 5
