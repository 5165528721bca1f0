"""Requests to a running job from another process of the same user, through a Unix socket.

    LOCK names process, host and socket <- the client reads it, and checks who listens there
    client -- request --> server        <- the server checks who asks, and for which directory
    client <-- accepted, then the outcome -- server

Anyone who may write to a checkpoint directory can forge its LOCK, and anyone can make a socket. So nothing is believed
that is not checked: the socket is in a directory of the same user that no one else may enter, the kernel says which
process and which user is at the other end, and the request names the directory by its device and inode.
"""
