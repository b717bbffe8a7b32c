"""Guards: what would make the answer wrong without an error. One file an interception, one exception class a misuse.

    clipping        gradients are clipped by hand: between micro-batches, or where it does nothing or happens twice
    editing         gradients change between two micro-batches
    zeroing         gradients are dropped inside a window
    updating        the optimizer steps without the engine
    scaling         the loss scale moves inside a window
    boundaries      backwards that no boundary comes after, or that come after it
    resizing        accumulation or micro-batch size change inside a window
    sharing         another engine's backward leaves gradients in this one's parameters
    evenness        ranks have different numbers of micro-batches, or weigh by different constants
    saving          a checkpoint is saved or loaded inside a window
    leaving         a window is still open at the end
    order           a step whose events are not those of a right step
    replicas        copies of the parameters differ between ranks (thorough)
    hanging         a rank waits for another that does not come

A guard reads nothing from the device and passes over no gradient. Undetected:

* edits of `p.grad.data`, which move no version counter; `"check": "thorough"` compares one element of each gradient;
* edits of a complete gradient on stage 0 between the last backward and the step, where a clip by hand may be right;
* gradients on ZeRO-2/3, which are gone from the parameters after each backward: there is nothing to edit;
* a count above the labels that lies on a device, which is not waited for;
* replicas that part and meet again between two of the steps that `"check": "thorough"` looks at.
"""
