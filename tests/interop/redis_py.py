"""redis-py's Lock on one key, driven by lines: takes it, gives it back, or counts under it."""

import sys
import time

import redis
from redis.exceptions import LockNotOwnedError

port, key = int(sys.argv[1]), sys.argv[2]
client = redis.Redis(host="127.0.0.1", port=port)
lock = None
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "lock":
        lock = client.lock(key, timeout=int(rest[0]) / 1000, thread_local=False)
        answer = "held" if lock.acquire(blocking=False) else "busy"
    elif word == "unlock":
        try:
            lock.release()
            answer = "released"
        except LockNotOwnedError:
            answer = "not ours"
    else:
        for _ in range(int(rest[0])):
            with client.lock(key, timeout=30, sleep=0.01, blocking_timeout=60):
                seen = int(client.get("counter"))
                time.sleep(0.002)
                client.set("counter", seen + 1)
        answer = "counted"
    print(answer, flush=True)
