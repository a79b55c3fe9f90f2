"""A TCP server at 192.0.2.7, port 80, that sends back what it receives."""

import socket
import threading


def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


listener = socket.create_server(("192.0.2.7", 80), backlog=16)
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=echo, args=(accepted,), daemon=True).start()
