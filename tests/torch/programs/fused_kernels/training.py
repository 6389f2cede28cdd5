from tests.torch.training_commands import main

main()
