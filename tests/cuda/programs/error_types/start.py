def kind(call):
    try:
        call()
    except Exception as error:
        return type(error)
    raise AssertionError("nothing was raised")
