"""What the mistakes that DeepSpeed does not report look like when it trains: one list of demonstrations a topic.

    DEMONSTRATIONS = (
        Demonstration(
            code="DSA404",                                     # the rule's own first examples are run
            says="without the key the gradient is clipped at 1",
            shows=lambda seen: seen["steps"][0]["ratio"] < 0.99,
        ),
    )

`../test_silent_mistakes.py` trains with the bad config and with the good one, all of them in one launch.
"""
