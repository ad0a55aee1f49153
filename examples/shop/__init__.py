"""Four stories of a shop whose code is behind URLs: `python -m examples.shop`, some twenty seconds.

1. partner: somebody is told, and told again after 1, 3, 5, 7 minutes until the answer is "success".
2. refund: the bank is asked every minute until the refund is through.
3. payment: a look whether the money has come, five minutes after the order. One customer pays late, one order is
   cancelled and must never be looked at.
4. membership: a reminder three days before a membership ends. One is renewed in time, one is given up.

Meanwhile a worker is killed with SIGKILL while a request of its is under way. At the end there is an account: what was
to arrive, what arrived, how late, what twice; exit status 0 if all of it went as planned and nothing was lost.

What to copy from here:

    tarry.toml    the four tasks, with the times that a real shop has
    stories.py    how jobs are put, replaced and cancelled
    signed.py     how the shop's server knows that a request is tarry's
    server.py     what the endpoints answer

The rest is the stage: `clock.py` has time run faster, `stage.py` starts tarry and tells what happens, `account.py`
compares it with what was planned. It needs `pip install 'tarry[push]'` and nothing else.
"""
