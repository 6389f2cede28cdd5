from tests.device.tape_programs import main

main()
