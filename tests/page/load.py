"""Sends one small program after another over HTTP, on several connections, and says how many got their result.
usage: load.py URL TOKEN SECONDS [REQUESTS_A_SECOND]"""

import http.client
import json
import sys
import threading
import time
import urllib.parse

CONNECTIONS = 8

url, token, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
each_s = CONNECTIONS / float(sys.argv[4]) if len(sys.argv) > 4 else 0
host = urllib.parse.urlparse(url).netloc
body = json.dumps({"inputs": [
    {"name": "GRID", "datatype": "UINT8", "shape": [1, 30, 30], "data": [7] * 900},
    {"name": "SIZE", "datatype": "INT32", "shape": [1, 2], "data": [3, 3]},
], "outputs": [{"name": "SIZE"}]})
headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
times, end = [], time.monotonic() + seconds


def send():
    connection = http.client.HTTPConnection(host, timeout=30)
    due = time.monotonic()
    while (began := time.monotonic()) < end:
        connection.request("POST", "/v2/models/rot90/infer", body, headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        times.append(time.monotonic() - began)
        due += each_s
        time.sleep(max(0, due - time.monotonic()) if each_s else 0)


threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
began = time.monotonic()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
took = time.monotonic() - began
times.sort()
print(json.dumps({"count": len(times), "rate": len(times) / took, "p50_ms": 1e3 * times[len(times) // 2],
                  "p99_ms": 1e3 * times[len(times) * 99 // 100]}))
